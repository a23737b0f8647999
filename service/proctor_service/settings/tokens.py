"""Configured tokens: a JSON object from tenant to token."""

from __future__ import annotations

import json

from proctor_service.errors import StartError


def parse_tokens(text: str, where: str) -> dict[str, str]:
    """Return the token of each tenant, parsed from JSON.

    Raises StartError; the message names the position in the text and omits tokens.
    """
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise StartError(f"{where}: not JSON: {error.msg} at {at}") from None
    except RecursionError:
        raise StartError(f"{where}: nested too deeply") from None
    # `object_pairs_hook` makes an array of arrays look like an object, so check the first brace.
    if not isinstance(pairs, list) or not text.lstrip().startswith("{") or not pairs:
        raise StartError(f"{where}: not a JSON object from tenant to a non-empty token")
    tokens: dict[str, str] = {}
    tenants: dict[str, str] = {}
    for tenant, token in pairs:
        at = f"{where}{_line_of(text, tenant)}"
        if not isinstance(token, str) or not token.strip():
            raise StartError(f"{at}: tenant {tenant!r} has no JSON string for a non-empty token")
        token = token.strip()  # a header has no space around a token
        if not token.isprintable():
            raise StartError(f"{at}: tenant {tenant!r} has a token that no header can carry")
        if tenant in tokens:
            raise StartError(f"{at}: tenant {tenant!r} stands there twice")
        if token in tenants:
            raise StartError(f"{at}: tenants {tenants[token]!r} and {tenant!r} have one token")
        tokens[tenant] = token
        tenants[token] = tenant
    return tokens


def _line_of(text: str, tenant: str) -> str:
    at = max(
        text.rfind(json.dumps(tenant, ensure_ascii=ascii_only)) for ascii_only in (True, False)
    )
    return "" if at < 0 else f" line {text.count(chr(10), 0, at) + 1}"
