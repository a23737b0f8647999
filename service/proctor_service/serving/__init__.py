"""The running service: its parts from open to close, and its HTTP server."""
