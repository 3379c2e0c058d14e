"""One page of metrics for Prometheus: those of Envoy, of the application and of the agent, passed on as they come.

https://istio.io/latest/docs/ops/integrations/prometheus/#option-1-metrics-merging
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

TIMEOUT_HEADER = "x-prometheus-scrape-timeout-seconds"
ACCEPT = "text/plain;version=0.0.4;q=1.0,*/*;q=0.1"
SECONDS = 10.0
LARGEST_LINE = 1 << 16
END = b"# EOF"
"""The last line of OpenMetrics, which applications that know nothing else send; behind it nothing would be read."""
RESERVED = frozenset({15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090})


class MetricsTarget(NamedTuple):
    """A page of metrics on this machine."""

    what: str
    host: str
    port: int
    path: str


def parse_targets(text: str, host: str, status_port: int) -> list[MetricsTarget]:
    """Returns the pages of the application's metrics that ISTIO_PROMETHEUS_ANNOTATIONS names. ValueError where it makes no sense."""
    where = "variable ISTIO_PROMETHEUS_ANNOTATIONS"
    if not text:
        return []
    try:
        said = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}") from error
    if not isinstance(said, dict):
        raise ValueError(f"{where} is not an object")
    if said.get("scrape") == "false":
        return []
    given = said.get("targets") or [{"port": said.get("port"), "path": said.get("path")}]
    return [
        MetricsTarget(
            "application", host, _port(where, one.get("port") or "80", status_port), one.get("path") or "/metrics"
        )
        for one in given
    ]


def _port(where: str, text: object, status_port: int) -> int:
    port = int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else 0
    if not 0 < port < 65536:
        raise ValueError(f"{where}: {text!r} is not a port")
    if port in RESERVED or port == status_port:
        raise ValueError(f"{where}: port {port} is one of the proxy's own")
    return port


def merge(
    own: bytes, targets: Iterable[MetricsTarget], seconds: float, failed: Callable[[MetricsTarget, Exception], None]
) -> Iterator[bytes]:
    """Yields the agent's own metrics and then those of each target, line by line as they come; `failed` is told of each that breaks off."""
    yield own
    for target in targets:
        try:
            yield from _lines(target, seconds)
        except (OSError, http.client.HTTPException) as error:
            failed(target, error)


def _lines(target: MetricsTarget, seconds: float) -> Iterator[bytes]:
    connection = http.client.HTTPConnection(target.host, target.port, timeout=seconds)
    try:
        path = target.path if target.path.startswith("/") else f"/{target.path}"
        connection.request("GET", path, headers={"accept": ACCEPT, TIMEOUT_HEADER: f"{seconds:g}"})
        response = connection.getresponse()
        if response.status != 200:
            raise http.client.HTTPException(f"it answers {response.status}")
        line = b"\n"
        while piece := response.readline(LARGEST_LINE):
            whole = line.endswith(b"\n")  # the piece begins a line
            line = piece
            if not (whole and piece.rstrip() == END):
                yield piece
        if not line.endswith(b"\n"):
            yield b"\n"
    finally:
        connection.close()
