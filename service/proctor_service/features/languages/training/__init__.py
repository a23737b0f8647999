"""Programs compiled and run to show the classes loaded by a compiler and a runtime."""
