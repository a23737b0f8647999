"""Propagation of the caller's trace to the service, if OpenTelemetry has an active span.

This module uses OpenTelemetry only if the process has already imported the package.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping


def trace_headers() -> Mapping[str, str]:
    """Return the headers `traceparent` and, if present, `tracestate` of the active span."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation import tracecontext

    headers: dict[str, str] = {}
    tracecontext.TraceContextTextMapPropagator().inject(headers)
    return headers
