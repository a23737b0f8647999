"""Child processes of the service: their start, the connection to them, and values as messages."""
