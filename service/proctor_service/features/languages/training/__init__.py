"""Programs whose compilation and run show which classes a compiler and a runtime load."""
