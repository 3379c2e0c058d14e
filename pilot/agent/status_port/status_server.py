"""The agent's own port: readiness, the application's probes, merged metrics, and commands from this machine."""

from __future__ import annotations

import http.server
import ipaddress
import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pilot.agent.agent_metrics import AgentMetrics
from pilot.agent.status_port.app_probes import PATH, Prober
from pilot.agent.status_port.merged_metrics import SECONDS, TIMEOUT_HEADER, MetricsTarget, merge
from pilot.agent.status_port.readiness import Readiness
from pilot.lib.exposition import CONTENT_TYPE
from pilot.lib.log import scope
from pilot.lib.start_error import StartError
from pilot.lib.text import one_line

READ_SECONDS = 30
MAX_CONCURRENT = 50
"""Connections that are served at once; the kubelet and Prometheus need a few."""
LINES = 512
"""Lines of metrics that are written at once."""
_log = scope("status")


class StatusPages(NamedTuple):
    """What the port serves. `targets` are pages of metrics; `commands` are run by a POST from this machine."""

    readiness: Readiness
    prober: Prober
    metrics: AgentMetrics
    targets: tuple[MetricsTarget, ...]
    commands: dict[str, Callable[[], None]]


class StatusServer:
    """Serves in threads, so that a slow application holds up neither readiness nor Envoy's configuration."""

    def __init__(self, port: int, pages: StatusPages) -> None:
        """StartError where the port cannot be had."""
        try:
            self._server = _Server(port, pages)
        except OSError as error:
            raise StartError(f"the status port {port} cannot be had: {error.strerror or error}") from error
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="status", daemon=True
        ).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    address_family = socket.AF_INET6

    def __init__(self, port: int, pages: StatusPages) -> None:
        self.pages, self._places = pages, threading.BoundedSemaphore(MAX_CONCURRENT)
        if not socket.has_dualstack_ipv6():
            self.address_family = socket.AF_INET
        super().__init__(("", port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection in a thread of its own, or closes it where too many are open."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Who breaks off the connection is not worth a trace."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = READ_SECONDS
    server: _Server

    def do_GET(self) -> None:
        path, pages = self.path.partition("?")[0], self.server.pages
        if path == "/healthz/ready":
            self._ready(pages)
        elif path == "/stats/prometheus":
            self._metrics(pages)
        elif PATH.fullmatch(path):
            status, body = pages.prober.answer(path, dict(self.headers.items()))
            self._answer(status, body)
        elif path in pages.commands:
            self._answer(405, b"use POST\n")
        else:
            self._answer(404, b"there is no such page\n")

    def do_POST(self) -> None:
        path, commands = self.path.partition("?")[0], self.server.pages.commands
        if path not in commands:
            self._answer(404, b"there is no such page\n")
        elif not _is_own(self.client_address[0]):
            self._answer(403, b"only requests from this machine are allowed\n")
        else:
            self._answer(200, b"OK\n")
            commands[path]()

    def _ready(self, pages: StatusPages) -> None:
        reason = pages.readiness.reason()
        if reason:
            _log.info("the proxy is not ready: %s", reason)
            self._answer(503, f"{one_line(reason)}\n".encode())
        else:
            pages.metrics.ready()
            self._answer(200)

    def _metrics(self, pages: StatusPages) -> None:
        pages.metrics.scraped()
        self.send_response(200)
        self.send_header("content-type", CONTENT_TYPE)
        self.send_header(
            "connection", "close"
        )  # the end of the connection is the end of the page, whose length nobody knows
        self.end_headers()
        for piece in _pieces(merge(pages.metrics.render(), pages.targets, self._seconds(), self._failed)):
            self.wfile.write(piece)
        self.close_connection = True

    def _failed(self, target: MetricsTarget, error: Exception) -> None:
        self.server.pages.metrics.scrape_failed(target.what)
        _log.warning("the metrics of %s at port %d, %s cannot be had: %s", target.what, target.port, target.path, error)

    def _seconds(self) -> float:
        """Returns the time that Prometheus gives."""
        try:
            return max(0.1, min(60.0, float(self.headers.get(TIMEOUT_HEADER, SECONDS))))
        except ValueError:
            return SECONDS

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the same bytes, many lines at once."""
    iterator = iter(lines)
    while piece := list(itertools.islice(iterator, LINES)):
        yield b"".join(piece)


def _is_own(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
