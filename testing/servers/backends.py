"""HTTP backends, and a client to send requests to them through the mesh."""

from __future__ import annotations

import dataclasses
import http.client
import http.server
import json
import socketserver
import threading
import time
from collections.abc import Mapping


@dataclasses.dataclass
class Request:
    """A request received by a backend."""

    method: str
    path: str
    headers: dict[str, str]
    peer: str = ""


class Backend:
    """Answers with its name and the request. The next `fail` requests get status 503; `delay` is in seconds."""

    def __init__(self, name: str, host: str = "127.0.0.1", port: int = 0) -> None:
        self.name, self.requests, self.fail, self.delay = name, list[Request](), 0, 0.0
        backend = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # headers and body in one packet, to avoid a delayed acknowledgement of 40 ms

            def do_GET(self) -> None:
                backend.requests.append(
                    Request(
                        self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, self.client_address[0]
                    )
                )
                time.sleep(backend.delay)
                status = 503 if backend.fail > 0 else 200
                backend.fail -= status == 503
                body = json.dumps(
                    {"backend": backend.name, "path": self.path, "headers": backend.requests[-1].headers}
                ).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                """Do not log."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def server_bind(self) -> None:
                """Use the address as the host name, because without a resolver a lookup would take ten seconds."""
                socketserver.TCPServer.server_bind(self)
                self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

        self._server = Server((host, port), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def reset(self) -> None:
        self.requests.clear()
        self.fail, self.delay = 0, 0.0

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclasses.dataclass
class HttpResponse:
    """A response."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> dict[str, object]:
        content: dict[str, object] = json.loads(self.text)
        return content


def send_request(
    address: tuple[str, int],
    path: str,
    host: str = "",
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    seconds: float = 15.0,
) -> HttpResponse:
    """Send one request over a new connection, without following redirects. `seconds` is the timeout of each step."""
    connection = http.client.HTTPConnection(*address, timeout=seconds)
    try:
        connection.request(method, path, headers={**({"host": host} if host else {}), **(headers or {})})
        response = connection.getresponse()
        return HttpResponse(
            response.status, {k.lower(): v for k, v in response.getheaders()}, response.read().decode(errors="replace")
        )
    finally:
        connection.close()
