"""A registry of container images on loopback: the part of the distribution API that fetching needs.

`skopeo` takes it with the `registries.conf` that `configuration` writes. Format: spec.md of the distribution
specification of the Open Container Initiative.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
PATH = "PATH=/usr/local/bin:/usr/bin:/bin"


@dataclass
class Registry:
    """Images by name and tag.

    `fetched`: how often each blob was; `status`: None, or that of all answers. `login`: `user:password`
    that requests must have, if any. `open`: an event that blobs wait for. `asked`: set by the first
    request for a blob.
    """

    port: int = 0
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    fetched: Counter[str] = field(default_factory=Counter)
    status: int | None = None
    login: str = ""
    open: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    def add(
        self,
        name: str,
        layers: Sequence[bytes],
        directory: str = "/app",
        tag: str = "1",
        form: str = "gzip",
    ) -> str:
        """Add an image of these archives; return its reference. `form`: `gzip`, `zstd`, or none."""
        zipped = [_packed(layer, form) for layer in layers]
        kind = f"{_LAYER}+{form}" if form else _LAYER
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": [PATH], "WorkingDir": directory},
            "rootfs": {"type": "layers", "diff_ids": [_digest(each) for each in layers]},
            "history": [{"created_by": "the tests"}] * len(layers),
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._stored(json.dumps(config).encode(), _CONFIG),
            "layers": [self._stored(each, kind) for each in zipped],
        }
        self.manifests[f"{name}:{tag}"] = json.dumps(manifest).encode()
        return f"127.0.0.1:{self.port}/{name}:{tag}"

    def _stored(self, data: bytes, kind: str) -> dict[str, object]:
        digest = _digest(data)
        self.blobs[digest] = data
        return {"mediaType": kind, "digest": digest, "size": len(data)}

    def layer_fetches(self) -> int:
        """Return how many blobs were fetched, but for configurations."""
        return sum(
            count for digest, count in self.fetched.items() if self.blobs[digest][:1] != b"{"
        )

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Return status, type and body of an answer."""
        if self.status is not None:
            return self.status, "text/plain", b"not now"
        if path == "/v2/":
            return 200, "application/json", b"{}"
        name, _, rest = path.removeprefix("/v2/").rpartition("/")
        name, _, kind = name.rpartition("/")
        if kind == "manifests":
            by_digest = {_digest(each): each for each in self.manifests.values()}
            found = self.manifests.get(f"{name}:{rest}") or by_digest.get(rest)
            if found is None:
                error = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
                return 404, "application/json", json.dumps(error).encode()
            return 200, _MANIFEST, found
        if rest not in self.blobs:
            return 404, "application/json", b"{}"
        self.asked.set()
        self.open.wait()
        self.fetched[rest] += 1
        return 200, "application/octet-stream", self.blobs[rest]

    def is_let_in(self, header: str | None) -> bool:
        """Return True for a request with this header `Authorization`."""
        wanted = "Basic " + base64.b64encode(self.login.encode()).decode()
        return not self.login or header == wanted

    def configuration(self, home: Path) -> None:
        """Write skopeo's configuration below a home, which allows this registry without TLS."""
        folder = home / ".config" / "containers"
        folder.mkdir(parents=True, exist_ok=True)
        text = f'[[registry]]\nlocation = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (folder / "registries.conf").write_text(text)


def _packed(layer: bytes, form: str) -> bytes:
    if form == "zstd":
        return subprocess.run(["zstd", "-qc"], input=layer, capture_output=True, check=True).stdout
    return gzip.compress(layer, 1, mtime=0) if form else layer


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def running_registry(port: int = 0, certificate: Path | None = None) -> Iterator[Registry]:
    """Serve on a free port, or on `port`, until the block ends; all blobs are open.

    `certificate`: file with a key and a certificate; the registry then has TLS.
    """
    registry = Registry()
    registry.open.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if registry.is_let_in(self.headers.get("Authorization")):
                status, kind, body = registry.answer(self.path)
            else:
                error = {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}
                status, kind, body = 401, "application/json", json.dumps(error).encode()
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="images"')
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.end_headers()
            if self.command == "GET":
                try:
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True

        do_HEAD = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.open.set()
        server.shutdown()
        server.server_close()
        thread.join()
