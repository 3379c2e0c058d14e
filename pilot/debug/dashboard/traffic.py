"""Request rates, error rates and latencies of services, from istio's standard metrics in a Prometheus server.

https://istio.io/latest/docs/reference/config/metrics/
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import aiohttp
import msgspec

from pilot.debug.dashboard.mesh import MeshGraph, service_place
from pilot.lib.logging.log import scope
from pilot.lib.text import cut, one_line

PERIOD = 15.0
"""Seconds for which an answer of Prometheus is used."""
TIMEOUT = aiohttp.ClientTimeout(total=10)
MAX_BYTES = 8 * 1024 * 1024
"""Maximum size of a response."""
MAX_SERIES = 5_000
"""Maximum number of series of a query that are used."""
_WINDOW = "2m"
_LABELS = ("source_workload_namespace", "source_workload", "source_canonical_service", "destination_service")
_EDGES = ", ".join(_LABELS)
_FAILED = ', response_code=~"5.."'
_log = scope("default")


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "")


class _Data(msgspec.Struct):
    result: list[_Series] = []


class _Response(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


class TrafficError(Exception):
    """Prometheus cannot be reached, or its answer is not usable. The message is for users."""


class Sample(NamedTuple):
    """The value of a series of `labels`, in the order of `_LABELS`. An unknown label is ""."""

    labels: tuple[str, ...]
    value: float


class TrafficRates(NamedTuple):
    """Requests and failed requests per second, and the 99th percentile of the duration in milliseconds.

    `edges` are measured at the client, and `nodes` at the server. The keys of `nodes` have only the destination.
    """

    edges: dict[str, list[Sample]]
    nodes: dict[str, list[Sample]]


def queries(reporter: str, labels: str) -> Mapping[str, str]:
    """Return the queries for each measurement."""
    rate = f'rate(istio_requests_total{{reporter="{reporter}"%s}}[{_WINDOW}])'
    buckets = f'rate(istio_request_duration_milliseconds_bucket{{reporter="{reporter}"}}[{_WINDOW}])'
    return {
        "rate": f"sum by ({labels}) ({rate % ''})",
        "errors": f"sum by ({labels}) ({rate % _FAILED})",
        "p99": f"histogram_quantile(0.99, sum by (le, {labels}) ({buckets}))",
    }


class Traffic:
    """The rates of a mesh. They are requested only while a page asks for them, one query at a time."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._fetching = asyncio.Lock()
        self._rates = TrafficRates({}, {})
        self._error = ""
        self._at = -PERIOD

    @property
    def is_enabled(self) -> bool:
        """Return whether the URL of a Prometheus server is set."""
        return bool(self._url)

    async def show(self, graph: MeshGraph, opened: str) -> dict[str, Any]:
        """Return the traffic between the visible places of a graph as a JSON object, or the error that prevents it."""
        if not self.is_enabled:
            return {"enabled": False}
        async with self._fetching:
            if time.monotonic() - self._at >= PERIOD:
                await self._fetch()
                self._at = time.monotonic()
        rates = self._rates
        shown = await asyncio.to_thread(show_rates, graph, rates, opened)
        return {"enabled": True, "error": self._error, **shown}

    async def _fetch(self) -> None:
        """Request all rates. If a request fails, keep the last rates and report the error."""
        try:
            async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
                edges = {name: await self._query(session, q) for name, q in queries("source", _EDGES).items()}
                nodes = {name: await self._query(session, q) for name, q in queries("destination", _LABELS[3]).items()}
        except (aiohttp.ClientError, TimeoutError, TrafficError) as error:
            text = cut(one_line(str(error)), 300) or type(error).__name__
            if not self._error:
                _log.warning("cannot read traffic from Prometheus: %s", text)
            self._error = text
        else:
            self._rates, self._error = TrafficRates(edges, nodes), ""

    async def _query(self, session: aiohttp.ClientSession, query: str) -> list[Sample]:
        async with session.post(f"{self._url}/api/v1/query", data={"query": query}) as response:
            body = bytearray()
            async for block in response.content.iter_chunked(1 << 16):
                body += block
                if len(body) > MAX_BYTES:
                    raise TrafficError(f"Prometheus sent more than {MAX_BYTES} bytes")
            status = response.status
        return await asyncio.to_thread(decode_samples, bytes(body), status)


def decode_samples(body: bytes, status: int) -> list[Sample]:
    """Return the samples in a response. Values that are not numbers are skipped."""
    try:
        response = msgspec.json.decode(body, type=_Response)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TrafficError(f"HTTP status {status} without a result of Prometheus") from error
    if response.status != "success":
        raise TrafficError(f"Prometheus answered: {response.error or f'HTTP status {status}'}")
    return list(_samples(response.data.result[:MAX_SERIES]))


def _samples(series: Iterable[_Series]) -> Iterator[Sample]:
    for one in series:
        try:
            value = float(one.value[1])
        except ValueError:
            continue
        if 0 <= value < float("inf"):
            yield Sample(tuple(_known(one.metric.get(label, "")) for label in _LABELS), value)


def _known(label: str) -> str:
    return "" if label == "unknown" else label


def show_rates(graph: MeshGraph, rates: TrafficRates, opened: str) -> dict[str, Any]:
    """Return the rates between visible places, and those of each place. Places outside of the graph are omitted.

    Rates of the same places are added. Their latency is the worst one.
    """
    by_host = {facts.host: service_place(facts, opened) for facts in graph.services}
    by_name = {
        (facts.namespace, facts.host.partition(".")[0]): service_place(facts, opened) for facts in graph.services
    }
    namespaces = {facts.namespace for facts in graph.services}
    edges: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    nodes: dict[str, dict[str, float]] = defaultdict(dict)
    for name, samples in rates.edges.items():
        for (namespace, workload, canonical, host), value in samples:
            source = by_name.get((namespace, canonical)) or by_name.get((namespace, workload))
            source = source or (f"namespace {namespace}" if namespace in namespaces and namespace != opened else "")
            target = by_host.get(host, "")
            if source and target and source != target:
                _add(edges[source, target], name, value)
    for name, samples in rates.nodes.items():
        for (*_, host), value in samples:
            if place := by_host.get(host):
                _add(nodes[place], name, value)
    return {
        "edges": [
            {"from": source, "to": target, **of} for (source, target), of in sorted(edges.items()) if "rate" in of
        ],
        "nodes": {place: of for place, of in sorted(nodes.items()) if "rate" in of},
    }


def _add(values: dict[str, float], name: str, value: float) -> None:
    values[name] = max(values.get(name, 0.0), value) if name == "p99" else values.get(name, 0.0) + value
