"""An image registry and file server over plain HTTP, with optional authentication."""

from __future__ import annotations

import base64
import collections
import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading
from typing import Any, NamedTuple

MANIFEST, INDEX = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"
ARCHIVE, MODULE = "application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.module.wasm.content.layer.v1+wasm"
TOKEN = "let-me-in"


class Reply(NamedTuple):
    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def archive(module: bytes, name: str = "plugin.wasm") -> bytes:
    """Return a layer with one file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as files:
        member = tarfile.TarInfo(name)
        member.size = len(module)
        files.addfile(member, io.BytesIO(module))
    return gzip.compress(out.getvalue())


class Registry:
    """Replies by path, and counts of requests by path.

    With a `login` (name:password), images require a token that the login obtains or, with `basic`, the login itself.
    """

    def __init__(self, login: str = "", basic: bool = False) -> None:
        self.replies: dict[str, Reply] = {}
        self.request_counts: collections.Counter[str] = collections.Counter()
        self.headers: list[dict[str, str]] = []
        self._login, self._basic = base64.b64encode(login.encode()).decode() if login else "", basic
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                outer.request_counts[path] += 1
                outer.headers.append(dict(self.headers))
                reply = outer.answer(path, self.headers.get("Authorization", ""))
                self.send_response(reply.status)
                for name, value in (*reply.headers, ("Content-Length", str(len(reply.body)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *_: Any) -> None:
                """Do not log."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, path: str, authorization: str) -> Reply:
        if path == "/token":
            is_valid = authorization == f"Basic {self._login}"
            return Reply(json.dumps({"token": TOKEN}).encode()) if is_valid else Reply(b"{}", 401)
        expected = f"Basic {self._login}" if self._basic else f"Bearer {TOKEN}"
        if self._login and path.startswith("/v2/") and authorization != expected:
            challenge = "Basic realm=x" if self._basic else f'Bearer realm="http://{self.host}/token",service="here"'
            return Reply(b"", 401, (("WWW-Authenticate", challenge),))
        return self.replies.get(path, Reply(b"not found", 404))

    def push(self, repository: str, tag: str, layer: bytes, kind: str = ARCHIVE) -> str:
        """Add an image with one layer, and return its digest."""
        body = json.dumps(
            {"mediaType": MANIFEST, "layers": [{"mediaType": kind, "digest": digest(layer), "size": len(layer)}]}
        ).encode()
        self.replies[f"/v2/{repository}/blobs/{digest(layer)}"] = Reply(layer)
        return self._publish(repository, tag, body)

    def push_index(self, repository: str, tag: str, *images: tuple[str, str]) -> str:
        """Add an index of images by platform and digest, and return its digest."""
        entries = [
            {"digest": d, "platform": dict(zip(("os", "architecture"), p.split("/"), strict=True))} for p, d in images
        ]
        return self._publish(repository, tag, json.dumps({"mediaType": INDEX, "manifests": entries}).encode())

    def _publish(self, repository: str, tag: str, body: bytes) -> str:
        for name in (tag, digest(body)):
            self.replies[f"/v2/{repository}/manifests/{name}"] = Reply(body)
        return digest(body)

    def docker_config(self) -> str:
        """Return a pull secret with the login."""
        return json.dumps({"auths": {self.host: {"auth": self._login}}})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
