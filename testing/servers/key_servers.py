"""Servers of JSON Web Key Sets, and a token issuer."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa


def base64url(data: bytes) -> str:
    """Return bytes in URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """An issuer of tokens with its key."""

    def __init__(self, name: str, kid: str = "one") -> None:
        self.name, self.kid = name, kid
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def keys(self) -> str:
        """Return its key set."""
        numbers = self._key.public_key().public_numbers()
        n, e = (base64url(value.to_bytes((value.bit_length() + 7) // 8)) for value in (numbers.n, numbers.e))
        return json.dumps({"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid, "n": n, "e": e}]})

    def token(self, claims: Mapping[str, Any], now: float, **more: Any) -> str:
        """Return a signed token, valid for an hour from `now` (Unix seconds) unless the claims say otherwise."""
        body = {"iss": self.name, "sub": "someone", "iat": int(now), "exp": int(now) + 3600, **claims}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": self.kid, **more}, body)
        signed = ".".join(base64url(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{base64url(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


class KeyServer:
    """Serves `answers` by path, and records `requested_paths`."""

    def __init__(self) -> None:
        self.answers: dict[str, web.Response | str] = {}
        self.requested_paths: list[str] = []
        self.port = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requested_paths.append(request.path)
        answer = self.answers.get(request.path)
        if isinstance(answer, web.Response):
            return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
        return web.Response(text=answer) if answer is not None else web.Response(status=404)


@contextlib.asynccontextmanager
async def key_server(address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[KeyServer]:
    """Yield a running server, with TLS if a context is given."""
    server, app = KeyServer(), web.Application()
    app.router.add_get("/{path:.*}", server._answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, address, 0, ssl_context=tls)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


class StaticServer:
    """An HTTP server in a thread. It serves `answers` by path, 404 for other paths, and 503 while `down` is set."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.requested_paths: list[str] = []
        self.down = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requested_paths.append(self.path)
                text = None if outer.down else outer.answers.get(self.path)
                self.send_response(503 if outer.down else 404 if text is None else 200)
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *_: object) -> None:
                """Do not log."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
