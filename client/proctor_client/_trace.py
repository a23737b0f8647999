"""The caller's trace, passed on to the service, where OpenTelemetry is there and a span is active.

It is looked for and never imported: without it nothing is sent, and nothing is spent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping


def trace_headers() -> Mapping[str, str]:
    """`traceparent`, and `tracestate` if there is one, of the span that is active here."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation import tracecontext

    headers: dict[str, str] = {}
    tracecontext.TraceContextTextMapPropagator().inject(headers)
    return headers
