"""A collector of traces on loopback: takes OTLP over HTTP, and keeps the spans."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from waits import WAIT_SECONDS


@dataclass(frozen=True)
class Seen:
    """One span; ids in hexadecimal, times in nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    begun: int
    ended: int
    failed: bool
    attributes: dict[str, str]


class Handler(BaseHTTPRequestHandler):
    """Takes what is posted."""

    server: Receiver

    def do_POST(self) -> None:
        """An export."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.take(self.path, body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep standard error for failures."""


class Receiver(ThreadingHTTPServer):
    """Serves until it is closed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[Seen] = []
        self.raw = b""
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, path: str, body: bytes) -> None:
        """Keeps the spans of an export."""
        assert path == "/v1/traces"
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        with self._changed:
            self.raw += body
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self.spans += [_seen(span) for span in scope.spans]
            self._changed.notify_all()

    def named(self, name: str, count: int = 1) -> list[Seen]:
        """The spans of a name, once there are so many."""

        def found() -> list[Seen]:
            return [span for span in self.spans if span.name == name]

        with self._changed:
            came = self._changed.wait_for(lambda: len(found()) >= count, WAIT_SECONDS)
            assert came, f"{len(found())} of {count} spans {name}; {[s.name for s in self.spans]}"
            return found()


def _seen(span: object) -> Seen:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

    assert isinstance(span, Span)
    return Seen(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        begun=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        attributes={
            each.key: each.value.string_value or str(each.value.int_value)
            for each in span.attributes
        },
    )


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    """A collector, until the block ends."""
    receiver = Receiver()
    thread = threading.Thread(target=receiver.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.shutdown()
        thread.join(WAIT_SECONDS)
        receiver.server_close()
