"""Tracing of a change from its source to the proxies: its event number in the log, and its spans in a collector."""

from __future__ import annotations

import json
import pathlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from testing.clients.fleet import CDS, Fleet
from testing.kube.kube_access import until
from testing.mesh.world import proxy
from testing.processes.process import ControlPlane
from testing.servers.trace_collectors import JsonCollector

pytestmark = pytest.mark.slow

ENTRY = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: x, namespace: shop}
spec: {hosts: [HOST], resolution: STATIC, ports: [{name: http, number: 80, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}
"""


@pytest.fixture
def collector() -> Iterator[JsonCollector]:
    collector_server = JsonCollector()
    yield collector_server
    collector_server.stop()


async def push_change(work: pathlib.Path, environ: dict[str, str], *more: str) -> AsyncIterator[str]:
    """Push a change to a proxy, stop the control plane after the acknowledgement, and yield the log."""
    config = work / "config"
    config.mkdir()
    (config / "x.yaml").write_text(ENTRY.replace("HOST", "one.example"))
    plane = ControlPlane(work, config, more=more, environ=environ)
    fleet = Fleet(plane.xds)
    try:
        plane.wait_ready()
        await fleet.connect("web", proxy("sidecar", "web-0", "shop", "10.2.0.1"), delta=False)
        resources = fleet.clients["web"].resources
        await until(lambda: "outbound|80||one.example" in resources[CDS])
        (config / "x.yaml").write_text(ENTRY.replace("HOST", "two.example"))
        await until(lambda: "outbound|80||two.example" in resources[CDS])
        await until(lambda: "acknowledged:1" in plane.log.read_text())
    finally:
        await fleet.stop()
        plane.stop()
    yield plane.log.read_text()


def spans_by_name(spans: list[dict[str, Any]], trace: str) -> dict[str, dict[str, Any]]:
    return {span["name"]: span for span in spans if span["traceId"] == trace}


async def test_change_has_a_trace_up_to_the_acknowledgement(tmp_path: pathlib.Path, collector: JsonCollector) -> None:
    headers = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=a%20b",
        "OTEL_SERVICE_NAME": "pilot",
    }
    async for _ in push_change(tmp_path, headers):
        assert {request["path"] for request in collector.requests} == {"/v1/traces"}
        assert collector.headers["x-tenant"] == "a b"
        [resource] = {json.dumps(request["resourceSpans"][0]["resource"]) for request in collector.requests}
        assert {"key": "service.name", "value": {"stringValue": "pilot"}} in json.loads(resource)["attributes"]
        spans = collector.spans()
        root = next(s for s in spans if s["name"] == "change" and s["attributes"]["pilot.acknowledged"] == "1")
        trace = spans_by_name(spans, root["traceId"])
        assert trace.keys() == {"change", "read", "commit", "derive", "push", "ack"}
        assert {span["parentSpanId"] for name, span in trace.items() if name != "change"} == {root["spanId"]}
        assert root["attributes"]["pilot.proxies"] == "1"
        assert root["attributes"]["pilot.changes.ServiceEntry.update"] == "1"
        assert int(trace["push"]["attributes"]["pilot.bytes.cds"]) > 0
        times = {name: (int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])) for name, span in trace.items()}
        assert all(start <= end for start, end in times.values())
        assert (
            times["change"][0]
            == times["read"][0]
            <= times["commit"][1]
            <= times["derive"][1]
            <= times["push"][1]
            <= times["ack"][1]
        )
        assert times["ack"][1] == times["change"][1]


async def test_log_lines_of_a_change_have_its_event_number(tmp_path: pathlib.Path) -> None:
    async for log in push_change(tmp_path, {}, "--log_as_json", "--log_output_level", "ads:debug"):
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        outcome = next(
            line for line in lines if line["msg"].startswith("Push event[") and "acknowledged:1" in line["msg"]
        )
        messages = [line["msg"] for line in lines if line.get("event") == outcome["event"]]
        assert isinstance(outcome["event"], int)
        assert [text.partition(" for ")[0].split()[0:2] for text in messages[:2]] == [
            ["Push", "debounce"],
            ["XDS:", "Pushing"],
        ]
        assert any(text.startswith("CDS: PUSH for node:web-0.shop") for text in messages)
