"""Servers of key sets on this machine, and the keys and tokens of an issuer."""

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


def encoded(data: bytes) -> str:
    """Bytes as tokens and keys have them."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """An issuer of tokens, with a key of its own."""

    def __init__(self, name: str, kid: str = "one") -> None:
        self.name, self.kid = name, kid
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def keys(self) -> str:
        """Its key set."""
        numbers = self._key.public_key().public_numbers()
        n, e = (encoded(value.to_bytes((value.bit_length() + 7) // 8)) for value in (numbers.n, numbers.e))
        return json.dumps({"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid, "n": n, "e": e}]})

    def token(self, claims: Mapping[str, Any], now: float, **more: Any) -> str:
        """A token that it has signed, good for an hour around `now` (Unix seconds) unless the claims say otherwise."""
        body = {"iss": self.name, "sub": "someone", "iat": int(now), "exp": int(now) + 3600, **claims}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": self.kid, **more}, body)
        signed = ".".join(encoded(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{encoded(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


class KeyServer:
    """Answers of a server by path; `asked`: the paths that it was asked for."""

    def __init__(self) -> None:
        self.answers: dict[str, web.Response | str] = {}
        self.asked: list[str] = []
        self.port = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        answer = self.answers.get(request.path)
        if isinstance(answer, web.Response):
            return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
        return web.Response(text=answer) if answer is not None else web.Response(status=404)


@contextlib.asynccontextmanager
async def key_server(address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[KeyServer]:
    """A server that runs until the end of the context, with TLS where a context of it is given."""
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
    """A server of HTTP on a thread of its own: `answers` by path, 404 for others, and 503 for all while it is `down`."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.asked: list[str] = []
        self.down = False
        found = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found.asked.append(self.path)
                text = None if found.down else found.answers.get(self.path)
                self.send_response(503 if found.down else 404 if text is None else 200)
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
