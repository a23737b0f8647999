"""Services with a judge that goes by a script; folders below have real ones."""

from shared_services import client, hotel, no_settings, sandbox, service, shared_server

__all__ = ["client", "hotel", "no_settings", "sandbox", "service", "shared_server"]
