"""Merged metrics: one Prometheus page with the metrics of Envoy, the application and the agent.

https://istio.io/latest/docs/ops/integrations/prometheus/#option-1-metrics-merging
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

TIMEOUT_HEADER = "x-prometheus-scrape-timeout-seconds"
ACCEPT = "text/plain;version=0.0.4;q=1.0,*/*;q=0.1"
DEFAULT_TIMEOUT = 10.0
MAX_LINE_BYTES = 1 << 16
MAX_PAGE_BYTES = 10 << 20
"""Maximum size of a page of an application with several targets. Larger pages count as failed scrapes."""
MAX_SCRAPES = 8
"""Maximum number of an application's pages that are read at the same time."""
EOF_MARKER = b"# EOF"
"""The last line of an OpenMetrics page. Applications may send it regardless of the Accept header, and parsers stop
there."""
RESERVED = frozenset({15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090})


class MetricsTarget(NamedTuple):
    """A page of metrics on this machine. `source` is envoy or application."""

    source: str
    host: str
    port: int
    path: str


def parse_targets(text: str, host: str, status_port: int) -> list[MetricsTarget]:
    """Return the application's metrics pages according to the value of ISTIO_PROMETHEUS_ANNOTATIONS.

    Raises ValueError if the value is invalid.
    """
    variable = "variable ISTIO_PROMETHEUS_ANNOTATIONS"
    if not text:
        return []
    try:
        annotations = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{variable} is not JSON: {error}") from error
    if not isinstance(annotations, dict):
        raise ValueError(f"{variable} is not an object")
    if annotations.get("scrape") == "false":
        return []
    targets = annotations.get("targets") or [{"port": annotations.get("port"), "path": annotations.get("path")}]
    return [
        MetricsTarget(
            "application",
            host,
            _parse_port(variable, target.get("port") or "80", status_port),
            target.get("path") or "/metrics",
        )
        for target in targets
    ]


def _parse_port(variable: str, text: object, status_port: int) -> int:
    port = int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else 0
    if not 0 < port < 65536:
        raise ValueError(f"{variable}: {text!r} is not a port")
    if port in RESERVED or port == status_port:
        raise ValueError(f"{variable}: port {port} is reserved for the proxy")
    return port


def merge_metrics(
    agent_metrics: bytes,
    targets: Sequence[MetricsTarget],
    timeout: float,
    on_failure: Callable[[MetricsTarget, Exception], None],
) -> Iterator[bytes]:
    """Yield the lines of the agent's metrics, followed by those of each target.

    The pages of an application with several targets are read at the same time, and limited to MAX_PAGE_BYTES. All other
    pages are streamed. `on_failure` is called for each target that cannot be scraped.
    """
    yield agent_metrics
    applications = [target for target in targets if target.source == "application"]
    with contextlib.ExitStack() as stack:
        pages: dict[MetricsTarget, concurrent.futures.Future[bytes]] = {}
        if len(applications) > 1:
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(min(len(applications), MAX_SCRAPES)))
            pages = {target: pool.submit(_read_page, target, timeout) for target in applications}
        for target in targets:
            try:
                if target in pages:
                    yield pages[target].result()
                else:
                    yield from _scrape(target, timeout)
            except (OSError, http.client.HTTPException) as error:
                on_failure(target, error)


def _read_page(target: MetricsTarget, timeout: float) -> bytes:
    """Return a whole page. Raises HTTPException if it is too large."""
    lines, size = [], 0
    for line in _scrape(target, timeout):
        lines.append(line)
        size += len(line)
        if size > MAX_PAGE_BYTES:
            raise http.client.HTTPException(f"the page is larger than {MAX_PAGE_BYTES} bytes")
    return b"".join(lines)


def _scrape(target: MetricsTarget, timeout: float) -> Iterator[bytes]:
    connection = http.client.HTTPConnection(target.host, target.port, timeout=timeout)
    try:
        path = target.path if target.path.startswith("/") else f"/{target.path}"
        connection.request("GET", path, headers={"accept": ACCEPT, TIMEOUT_HEADER: f"{timeout:g}"})
        response = connection.getresponse()
        if response.status != 200:
            raise http.client.HTTPException(f"status {response.status}")
        previous = b"\n"
        while line := response.readline(MAX_LINE_BYTES):
            is_line_start = previous.endswith(b"\n")
            previous = line
            if not (is_line_start and line.rstrip() == EOF_MARKER):
                yield line
        if not previous.endswith(b"\n"):
            yield b"\n"
    finally:
        connection.close()
