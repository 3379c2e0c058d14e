"""Traffic on the dashboard, from a Prometheus server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pilot.debug.dashboard import traffic
from pilot.debug.dashboard.mesh import MeshGraph
from pilot.debug.dashboard.traffic import Sample, Traffic, TrafficError, TrafficRates, decode_samples, show_rates
from tests.unit.debug.dashboard.test_mesh import API, WEB, facts_of

GRAPH = MeshGraph([facts_of("a", WEB), facts_of("b", API)], (), [])


def response(*series: tuple[dict[str, str], str]) -> bytes:
    result = [{"metric": metric, "value": [1.0, value]} for metric, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def edge(value: float, namespace: str = "b", canonical: str = "api", host: str = WEB) -> Sample:
    return Sample((namespace, "workload", canonical, host), value)


def test_samples_are_numbers() -> None:
    labels = {"source_workload_namespace": "b", "source_canonical_service": "unknown", "destination_service": WEB}
    body = response((labels, "1.5"), (labels, "NaN"), (labels, "+Inf"), (labels, "x"))
    assert decode_samples(body, 200) == [Sample(("b", "", "", WEB), 1.5)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "HTTP status 502 without a result of Prometheus"),
        (b'{"status": "error", "error": "bad query"}', "Prometheus answered: bad query"),
        (b"{}", "Prometheus answered: HTTP status 502"),
    ],
)
def test_unusable_answer(body: bytes, message: str) -> None:
    with pytest.raises(TrafficError, match=f"^{message}$"):
        decode_samples(body, 502)


def test_rates_belong_to_the_visible_places() -> None:
    rates = TrafficRates(
        {
            "rate": [edge(2.0), edge(3.0, canonical="other"), edge(9.0, "gone"), edge(9.0, host="gone.example")],
            "errors": [edge(1.0)],
            "p99": [edge(20.0), edge(50.0, canonical="other")],
        },
        {"rate": [Sample(("", "", "", WEB), 5.0)], "errors": [], "p99": []},
    )
    folded = show_rates(GRAPH, rates, "")
    assert folded["edges"] == [{"from": "namespace b", "to": "namespace a", "rate": 5.0, "errors": 1.0, "p99": 50.0}]
    assert folded["nodes"] == {"namespace a": {"rate": 5.0}}
    opened = show_rates(GRAPH, rates, "b")
    assert opened["edges"] == [
        {"from": f"service b/{API}", "to": "namespace a", "rate": 2.0, "errors": 1.0, "p99": 20.0}
    ]


async def test_rates_are_requested_once_in_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    fail = False

    async def query(request: web.Request) -> web.Response:
        queries.append(str((await request.post())["query"]))
        if fail:
            return web.Response(status=500, text="no")
        labels = {"source_workload_namespace": "b", "source_canonical_service": "api", "destination_service": WEB}
        return web.Response(body=response((labels, "2")), content_type="application/json")

    app = web.Application()
    app.router.add_post("/api/v1/query", query)
    async with TestServer(app) as server:
        rates = Traffic(str(server.make_url("/")))
        for _ in range(2):
            shown = await rates.show(GRAPH, "")
            assert (shown["enabled"], shown["error"], shown["edges"][0]["rate"]) == (True, "", 2.0)
        assert len(queries) == 6
        assert all("istio_request" in text for text in queries)
        monkeypatch.setattr(traffic, "PERIOD", 0.0)
        fail = True
        shown = await rates.show(GRAPH, "")
        assert (shown["error"], shown["edges"][0]["rate"]) == ("HTTP status 500 without a result of Prometheus", 2.0)


async def test_large_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MAX_BYTES", 10)

    async def query(_: web.Request) -> web.Response:
        return web.Response(body=response())

    app = web.Application()
    app.router.add_post("/api/v1/query", query)
    async with TestServer(app) as server:
        shown = await Traffic(str(server.make_url("/"))).show(GRAPH, "")
        assert shown["error"] == "Prometheus sent more than 10 bytes"


async def test_traffic_is_disabled_without_a_url() -> None:
    answer: Any = await Traffic("").show(GRAPH, "")
    assert answer == {"enabled": False}
