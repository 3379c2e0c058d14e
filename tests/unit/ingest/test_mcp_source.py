"""A server of objects over xDS as a source: what it says counts as far as it is right, and stays while it is away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pilot.config.catalogue import CATALOGUE
from pilot.config.kinds import istio
from pilot.config.problem import Severity
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.mcp_source import McpSource
from testing.control_planes.config_sources import MemoryConfig
from testing.control_planes.mcp_config_source import McpConfig
from testing.kube.kube_access import until

ENTRY = "networking.istio.io/v1/ServiceEntry"
SERVICE_ENTRY = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: {0}, namespace: shop}}
spec: {{hosts: [{0}.example.com], resolution: NONE, ports: [{{number: {1}, name: http, protocol: HTTP}}]}}
"""


@pytest.fixture
def source() -> Iterator[McpConfig]:
    made = McpConfig()
    yield made
    made.close()


def ports(source: McpConfig) -> dict[str, int]:
    return {key.name: row.spec.ports[0].number for key, row in istio.SERVICE_ENTRY.table(source.mesh).rows()}


def entries(**numbers: int) -> str:
    return "---".join(SERVICE_ENTRY.format(name, number) for name, number in numbers.items())


def test_a_broken_resource_leaves_its_object_as_it_was_and_the_others_go_on(source: McpConfig) -> None:
    source.set("x", entries(a=1, b=1))
    for data in (source.server.objects[ENTRY]["shop/a"][:-3], b"\xff", b""):
        source.server.objects[ENTRY] |= {"shop/a": data}
        source.set("y", entries(c=3))
        assert ports(source) == {"b": 1, "c": 3}
        assert ENTRY in source.server.refused
        source.remove("y")
    source.set("x", entries(a=2, b=2))
    assert ports(source) == {"a": 2, "b": 2}
    assert (list(source.problems), source.server.refused) == ([], {})


def test_a_refusal_names_the_object_and_the_place_in_it(source: McpConfig) -> None:
    source.set("x", entries(a=1, b=1))
    source.set("x", entries(a=70000, b=2))
    assert ports(source) == {"a": 1, "b": 2}
    assert "ServiceEntry shop/a" in source.server.refused[ENTRY]
    assert "spec.ports[0].number" in source.server.refused[ENTRY]
    assert "shop/b" not in source.server.refused[ENTRY]
    [problem] = source.problems
    assert (problem.object.name, problem.path, problem.file) == ("a", "spec.ports[0].number", source.source.name)


def test_what_is_refused_is_refused_again_as_long_as_it_is_sent(source: McpConfig) -> None:
    source.set("x", entries(a=70000))
    source.server.refused.clear()
    source.set("y", entries(b=1))
    assert "shop/a" in source.server.refused[ENTRY]


def test_an_answer_with_what_was_there_is_no_edit(source: McpConfig) -> None:
    source.set("x", entries(a=1, b=1))
    source.push(ENTRY)
    assert len(source.commits) == 1


def test_while_the_server_is_away_everything_stays_and_then_what_it_has_counts(source: McpConfig) -> None:
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
    before = source.server.sent[ENTRY]
    del source.server.objects[ENTRY]["shop/a"]
    source.run(source.server.start())
    source.run(
        until(
            lambda: source.server.sent[ENTRY] != before and source.server.settled(ENTRY) and len(source.problems) == 0
        )
    )
    source.clock.advance(1)
    assert ports(source) == {"b": 1}


def test_the_first_request_alone_says_who_asks(source: McpConfig) -> None:
    first, *others = source.server.requests
    assert first.node.metadata["GENERATOR"] == "api"
    assert not any(request.HasField("node") for request in others)
    assert {request.type_url for request in source.server.requests} == set(source.source.types)


def test_a_type_that_was_not_asked_for_is_refused(source: McpConfig) -> None:
    async def answer() -> list[str]:
        return await source.source.receive("a/b/C", [])

    assert source._runner.run(answer()) == ["no subscription for a/b/C"]


async def test_a_source_has_been_read_once_all_kinds_of_istio_were_answered() -> None:
    kinds = [kind for kind in CATALOGUE if kind.id.name in ("ServiceEntry", "Sidecar", "Pod")]
    batch = MemoryConfig()
    source = McpSource("xds://a:1", kinds, batch.batch, batch.ledger, 0, DocumentOrigin(), batch.problems)
    assert len(source.types) == 3
    for type_url in (url for url in source.types if "istio.io" in url):
        assert not source.synced.is_set()
        await source.receive(type_url, [])
    assert source.synced.is_set()
