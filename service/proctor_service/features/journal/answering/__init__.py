"""The journal over HTTP: questions, and the reader process with the answers."""
