"""Clients, sessions, handles and streams for event loops."""
