"""Configuration objects from an xDS server: partial acceptance, and retention while the server is down."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pilot.config.catalogue import CATALOGUE
from pilot.config.kinds import istio
from pilot.config.problem import Severity
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.mcp_source import McpSource
from pilot.ingest.object_decoder import LARGE
from pilot.mcp import wire
from pilot.mcp.object_types import ObjectType
from testing.control_planes.config_sources import MemoryConfigSource
from testing.control_planes.mcp_config_source import McpConfigSource
from testing.kube.kube_access import until

ENTRY_TYPE = "networking.istio.io/v1/ServiceEntry"
SERVICE_ENTRY = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: {0}, namespace: shop}}
spec: {{hosts: [{0}.example.com], resolution: NONE, ports: [{{number: {1}, name: http, protocol: HTTP}}]}}
"""


@pytest.fixture
def source() -> Iterator[McpConfigSource]:
    mcp_source = McpConfigSource()
    yield mcp_source
    mcp_source.close()


def ports(source: McpConfigSource) -> dict[str, int]:
    return {key.name: row.spec.ports[0].number for key, row in istio.SERVICE_ENTRY.table(source.mesh).rows()}


def entries(**numbers: int) -> str:
    return "---".join(SERVICE_ENTRY.format(name, number) for name, number in numbers.items())


def test_malformed_resource_does_not_affect_other_objects(source: McpConfigSource) -> None:
    source.set("x", entries(a=1, b=1))
    for data in (source.server.objects[ENTRY_TYPE]["shop/a"][:-3], b"\xff", b""):
        source.server.objects[ENTRY_TYPE] |= {"shop/a": data}
        source.set("y", entries(c=3))
        assert ports(source) == {"b": 1, "c": 3}
        assert ENTRY_TYPE in source.server.rejected
        source.remove("y")
    source.set("x", entries(a=2, b=2))
    assert ports(source) == {"a": 2, "b": 2}
    assert (list(source.problems), source.server.rejected) == ([], {})


def test_nack_names_the_object_and_path(source: McpConfigSource) -> None:
    source.set("x", entries(a=1, b=1))
    source.set("x", entries(a=70000, b=2))
    assert ports(source) == {"a": 1, "b": 2}
    assert "ServiceEntry shop/a" in source.server.rejected[ENTRY_TYPE]
    assert "spec.ports[0].number" in source.server.rejected[ENTRY_TYPE]
    assert "shop/b" not in source.server.rejected[ENTRY_TYPE]
    [problem] = source.problems
    assert (problem.object.name, problem.path, problem.file) == ("a", "spec.ports[0].number", source.source.name)


def test_invalid_object_is_rejected_on_every_response(source: McpConfigSource) -> None:
    source.set("x", entries(a=70000))
    source.server.rejected.clear()
    source.set("y", entries(b=1))
    assert "shop/a" in source.server.rejected[ENTRY_TYPE]


def test_unchanged_response_commits_nothing(source: McpConfigSource) -> None:
    source.set("x", entries(a=1, b=1))
    source.push(ENTRY_TYPE)
    assert len(source.commits) == 1


def test_objects_remain_while_the_server_is_down(source: McpConfigSource) -> None:
    source.set("x", entries(a=1, b=1))
    source.run(source.server.stop())
    source.run(until(lambda: len(source.problems) == 1))
    [problem] = source.problems
    assert (problem.code, problem.severity, problem.file) == (
        "unreachable-source",
        Severity.WARNING,
        source.source.name,
    )
    assert ports(source) == {"a": 1, "b": 1}
    before = source.server.sent[ENTRY_TYPE]
    del source.server.objects[ENTRY_TYPE]["shop/a"]
    source.run(source.server.start())
    source.run(
        until(
            lambda: (
                source.server.sent[ENTRY_TYPE] != before
                and source.server.is_acknowledged(ENTRY_TYPE)
                and len(source.problems) == 0
            )
        )
    )
    source.clock.advance(1)
    assert ports(source) == {"b": 1}


def test_only_the_first_request_has_the_node(source: McpConfigSource) -> None:
    first, *others = source.server.requests
    assert first.node.metadata["GENERATOR"] == "api"
    assert not any(request.HasField("node") for request in others)
    assert {request.type_url for request in source.server.requests} == set(source.source.types)


def test_unsubscribed_type_is_rejected(source: McpConfigSource) -> None:
    errors: list[str] = []

    async def receive() -> None:
        errors.extend(await source.source.receive("a/b/C", []))

    source.run(receive())
    assert errors == ["no subscription for a/b/C"]


async def test_source_is_synced_after_all_istio_kinds() -> None:
    kinds = [kind for kind in CATALOGUE if kind.id.name in ("ServiceEntry", "Sidecar", "Pod")]
    batch = MemoryConfigSource()
    source = McpSource("xds://a:1", kinds, batch.batch, batch.ledger, 0, DocumentOrigin(), batch.problems)
    assert len(source.types) == 3
    for type_url in (url for url in source.types if "istio.io" in url):
        assert not source.synced.is_set()
        await source.receive(type_url, [])
    assert source.synced.is_set()


def test_large_resource_is_decoded_in_a_thread(source: McpConfigSource, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[int, str] = {}
    decode = wire.decode_object

    def record(of: ObjectType, type_url: str, data: bytes) -> wire.ReceivedObject:
        threads[len(data)] = threading.current_thread().name
        return decode(of, type_url, data)

    monkeypatch.setattr(wire, "decode_object", record)
    names = ", ".join(f"spiffe://cluster.local/ns/shop/sa/{number}" for number in range(3000))
    source.set(
        "x", entries(a=1) + "---" + SERVICE_ENTRY.format("b", 2).replace("ports", f"subjectAltNames: [{names}], ports")
    )
    assert ports(source) == {"a": 1, "b": 2}
    small, large = sorted(threads)
    assert large > LARGE > small
    assert threads[large] != threads[small] == threading.current_thread().name
