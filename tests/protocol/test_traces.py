"""A change is followed from its source to the proxies: by its number in the log, and as a trace where there is a collector."""

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
    made = JsonCollector()
    yield made
    made.stop()


async def change_something(work: pathlib.Path, environ: dict[str, str], *more: str) -> AsyncIterator[str]:
    """Has a proxy follow a change; yields the log when it has acknowledged, and ends the control plane."""
    config = work / "config"
    config.mkdir()
    (config / "x.yaml").write_text(ENTRY.replace("HOST", "one.example"))
    plane = ControlPlane(work, config, more=more, environ=environ)
    fleet = Fleet(plane.xds)
    try:
        plane.wait_ready()
        await fleet.connect("web", proxy("sidecar", "web-0", "shop", "10.2.0.1"), delta=False)
        have = fleet.followers["web"].have
        await until(lambda: "outbound|80||one.example" in have[CDS])
        (config / "x.yaml").write_text(ENTRY.replace("HOST", "two.example"))
        await until(lambda: "outbound|80||two.example" in have[CDS])
        await until(lambda: "acknowledged:1" in plane.log.read_text())
    finally:
        await fleet.stop()
        plane.stop()
    yield plane.log.read_text()


def by_name(spans: list[dict[str, Any]], trace: str) -> dict[str, dict[str, Any]]:
    return {span["name"]: span for span in spans if span["traceId"] == trace}


async def test_a_change_is_a_trace_from_its_source_to_the_acknowledgement(
    tmp_path: pathlib.Path, collector: JsonCollector
) -> None:
    headers = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=a%20b",
        "OTEL_SERVICE_NAME": "pilot",
    }
    async for _ in change_something(tmp_path, headers):
        assert {request["path"] for request in collector.requests} == {"/v1/traces"}
        assert collector.headers["x-tenant"] == "a b"
        [resource] = {json.dumps(request["resourceSpans"][0]["resource"]) for request in collector.requests}
        assert {"key": "service.name", "value": {"stringValue": "pilot"}} in json.loads(resource)["attributes"]
        spans = collector.spans()
        root = next(s for s in spans if s["name"] == "change" and s["attributes"]["pilot.acknowledged"] == "1")
        found = by_name(spans, root["traceId"])
        assert found.keys() == {"change", "read", "commit", "derive", "push", "ack"}
        assert {span["parentSpanId"] for name, span in found.items() if name != "change"} == {root["spanId"]}
        assert root["attributes"]["pilot.proxies"] == "1"
        assert root["attributes"]["pilot.changes.ServiceEntry.update"] == "1"
        assert int(found["push"]["attributes"]["pilot.bytes.cds"]) > 0
        times = {name: (int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])) for name, span in found.items()}
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


async def test_lines_of_one_change_have_its_number(tmp_path: pathlib.Path) -> None:
    async for log in change_something(tmp_path, {}, "--log_as_json", "--log_output_level", "ads:debug"):
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        told = next(line for line in lines if line["msg"].startswith("Push event[") and "acknowledged:1" in line["msg"])
        same = [line["msg"] for line in lines if line.get("event") == told["event"]]
        assert isinstance(told["event"], int)
        assert [text.partition(" for ")[0].split()[0:2] for text in same[:2]] == [
            ["Push", "debounce"],
            ["XDS:", "Pushing"],
        ]
        assert any(text.startswith("CDS: PUSH for node:web-0.shop") for text in same)
