"""The HTTP server of the status port: readiness, application probes, merged metrics, and commands for local callers."""

from __future__ import annotations

import http.server
import ipaddress
import itertools
import socket
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pilot.agent.agent_metrics import AgentMetrics
from pilot.agent.status_port.app_probes import PATH, Prober
from pilot.agent.status_port.merged_metrics import DEFAULT_TIMEOUT, TIMEOUT_HEADER, MetricsTarget, merge_metrics
from pilot.agent.status_port.readiness import Readiness
from pilot.lib.logging.log import scope
from pilot.lib.metrics.exposition import CONTENT_TYPE
from pilot.lib.start_error import StartError
from pilot.lib.text import one_line

READ_TIMEOUT = 30
MAX_CONNECTIONS = 50
"""Maximum number of concurrent connections. The kubelet and Prometheus need only a few."""
LINES_PER_WRITE = 512
COMPRESSION_LEVEL = 1
"""The fastest level of zlib. Metrics shrink to about a tenth even so."""
_log = scope("status")


class StatusPages(NamedTuple):
    """The content of the status port.

    The pages of `targets` are merged into the metrics. `commands` are keyed by path and run on a POST from this
    machine.
    """

    readiness: Readiness
    prober: Prober
    metrics: AgentMetrics
    targets: tuple[MetricsTarget, ...]
    commands: dict[str, Callable[[], None]]


class StatusServer:
    """Serves requests in threads, so that a slow application delays neither readiness nor configuration."""

    def __init__(self, port: int, pages: StatusPages) -> None:
        """Bind the port. Raises StartError."""
        try:
            self._server = _Server(port, pages)
        except OSError as error:
            raise StartError(f"cannot listen on the status port {port}: {error.strerror or error}") from error
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
        self.pages, self._slots = pages, threading.BoundedSemaphore(MAX_CONNECTIONS)
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
        """Serve a connection in a new thread, or close it if there are too many."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error. In most cases, the client closed the connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = READ_TIMEOUT
    server: _Server

    def do_GET(self) -> None:
        path, pages = self.path.partition("?")[0], self.server.pages
        if path == "/healthz/ready":
            self._send_readiness(pages)
        elif path == "/stats/prometheus":
            self._send_metrics(pages)
        elif PATH.fullmatch(path):
            status, body = pages.prober.probe(path, dict(self.headers.items()))
            self._respond(status, body)
        elif path in pages.commands:
            self._respond(405, b"use POST\n")
        else:
            self._respond(404, b"page not found\n")

    def do_POST(self) -> None:
        path, commands = self.path.partition("?")[0], self.server.pages.commands
        if path not in commands:
            self._respond(404, b"page not found\n")
        elif not _is_loopback(self.client_address[0]):
            self._respond(403, b"only requests from this machine are allowed\n")
        else:
            self._respond(200, b"OK\n")
            commands[path]()

    def _send_readiness(self, pages: StatusPages) -> None:
        failure = pages.readiness.failure()
        if failure:
            _log.info("the proxy is not ready: %s", failure)
            self._respond(503, f"{one_line(failure)}\n".encode())
        else:
            pages.metrics.ready()
            self._respond(200)

    def _send_metrics(self, pages: StatusPages) -> None:
        pages.metrics.scraped()
        self.send_response(200)
        self.send_header("content-type", CONTENT_TYPE)
        gzips = accepts_gzip(self.headers.get("accept-encoding", ""))
        if gzips:
            self.send_header("content-encoding", "gzip")
        self.send_header("vary", "accept-encoding")
        self.send_header("connection", "close")  # the length is unknown; the end of the connection ends the body
        self.end_headers()
        lines = merge_metrics(pages.metrics.render(), pages.targets, self._scrape_timeout(), self._report_failure)
        for block in _gzip(_join_lines(lines)) if gzips else _join_lines(lines):
            self.wfile.write(block)
        self.close_connection = True

    def _report_failure(self, target: MetricsTarget, error: Exception) -> None:
        self.server.pages.metrics.scrape_failed(target.source)
        _log.warning(
            "cannot scrape the metrics of %s (port %d, path %s): %s", target.source, target.port, target.path, error
        )

    def _scrape_timeout(self) -> float:
        """Return the scrape timeout that Prometheus sent, restricted to a valid range."""
        try:
            return max(0.1, min(60.0, float(self.headers.get(TIMEOUT_HEADER, DEFAULT_TIMEOUT))))
        except ValueError:
            return DEFAULT_TIMEOUT

    def _respond(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Discard the message, because requests are not logged."""


def _join_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in blocks of many lines."""
    iterator = iter(lines)
    while block := list(itertools.islice(iterator, LINES_PER_WRITE)):
        yield b"".join(block)


def accepts_gzip(header: str) -> bool:
    """Return whether the value of an Accept-Encoding header allows gzip."""
    for entry in header.split(","):
        name, _, parameters = entry.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return parameters.replace(" ", "").rstrip("0") not in ("q=", "q=0", "q=0.")
    return False


def _gzip(blocks: Iterable[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(COMPRESSION_LEVEL, wbits=zlib.MAX_WBITS | 16)
    for block in blocks:
        yield compressor.compress(block)
    yield compressor.flush()


def _is_loopback(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
