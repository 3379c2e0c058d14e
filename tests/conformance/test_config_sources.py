"""Guarantees of every configuration source. Set KUBECONFIG to use another API server than the tests' own."""

from __future__ import annotations

import pathlib
import random
import tempfile
from collections.abc import Iterator

import pytest

from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.problem import ObjectRef, Severity
from pilot.ingest.decode import Decoded
from testing.control_planes.config_sources import (
    DOCUMENT_SOURCES,
    KINDS,
    MemoryConfigSource,
    ObjectConfigSource,
    Source,
    make,
    rows,
)
from testing.control_planes.kube_config_source import KubeConfigSource
from testing.control_planes.mcp_config_source import McpConfigSource
from testing.rows import Rows


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Source]:
    config_source = make(request.param, tmp_path)
    yield config_source
    if isinstance(config_source, KubeConfigSource | McpConfigSource):
        config_source.close()


@pytest.fixture(params=DOCUMENT_SOURCES)
def documents(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Source:
    return make(request.param, tmp_path)


def entry(name: str, port: int = 80) -> str:
    """Return a ServiceEntry. An API server accepts it with an invalid port too, because its definition has no schema."""
    spec = f"{{hosts: [{name}.com], resolution: NONE, ports: [{{number: {port}, name: http, protocol: HTTP}}]}}"
    return f"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n"


def ports(source: Source) -> dict[str, int]:
    return {key.name: o.spec.ports[0].number for key, o in SERVICE_ENTRY.table(source.mesh).rows()}


ENTRY = GroupKind("networking.istio.io", "ServiceEntry")
MINIMAL = {
    "Service": "spec: {ports: [{port: 80}]}",
    "Pod": "spec: {containers: [{name: a, image: a}]}",
    "EndpointSlice": "addressType: IPv4\nendpoints: []",
    "Ingress": "spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}",
    "IngressClass": "spec: {controller: example.com/a}",
    "ServiceEntry": "spec: {hosts: [a.com], resolution: NONE, ports: [{number: 80, name: http, protocol: HTTP}]}",
    "VirtualService": "spec: {hosts: [a], http: [{route: [{destination: {host: a}}]}]}",
    "DestinationRule": "spec: {host: a}",
    "Gateway": "spec: {servers: [{hosts: ['*'], port: {number: 80, name: http, protocol: HTTP}}]}",
    "gateway.networking.k8s.io/Gateway": (
        "spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}"
    ),
    "ListenerSet": "spec: {parentRef: {name: a}, listeners: [{name: http, port: 80, protocol: HTTP}]}",
    "ReferenceGrant": "spec: {from: [{group: a.io, kind: A, namespace: b}], to: [{group: a.io, kind: B}]}",
    "TCPRoute": "spec: {rules: [{}]}",
    "UDPRoute": "spec: {rules: [{}]}",
    "TLSRoute": "spec: {hostnames: [a.com], rules: [{}]}",
    "WorkloadEntry": "spec: {address: 1.1.1.1}",
    "WorkloadGroup": "spec: {template: {}}",
    "WasmPlugin": "spec: {url: 'oci://example.com/a'}",
    "TrafficExtension": "spec: {lua: {inlineCode: 'function envoy_on_request(h) end'}}",
    "Sidecar": "spec: {egress: [{hosts: ['./*']}]}",
}


def test_every_kind_is_stored_in_its_table(source: Source) -> None:
    with Rows() as rows:
        for kind in CATALOGUE:
            for version in kind.versions:
                api_version = f"{kind.id.group}/{version}".removeprefix("/")
                with rows.row(f"{api_version} {kind.id.name}"):
                    before = len(kind.table(source.mesh))
                    head = f"apiVersion: {api_version}\nkind: {kind.id.name}\nmetadata: {{name: a}}\n"
                    spec = MINIMAL.get(f"{kind.id.group}/{kind.id.name}") or MINIMAL.get(kind.id.name, "")
                    source.set("x", head + spec)
                    assert [p for p in source.problems if p.severity is Severity.ERROR] == []
                    assert len(kind.table(source.mesh)) == before + 1
                    source.remove("x")
                    assert len(kind.table(source.mesh)) == before


def test_set_change_and_remove(source: Source) -> None:
    source.set("x", entry("a", 1) + "---\n" + entry("b", 1))
    assert ports(source) == {"a": 1, "b": 1}
    source.set("x", entry("a", 2))
    assert ports(source) == {"a": 2}
    source.remove("x")
    assert ports(source) == {}


def test_one_change_is_one_commit(source: Source) -> None:
    source.set("x", "---\n".join(entry(f"s{i}") for i in range(50)))
    assert len(source.commits) == 1
    assert len(source.commits[0].edits) == 50


def test_irrelevant_edits_cause_no_commit(source: Source) -> None:
    source.set("x", entry("a"))
    source.set(
        "x",
        entry("a").replace(
            "{name: a", "{resourceVersion: '2', uid: x, annotations: {a: b}, managedFields: [], name: a"
        ),
    )
    assert len(source.commits) == 1


def test_invalid_object_keeps_its_last_valid_version(source: Source) -> None:
    source.set("x", entry("a", 1) + "---\n" + entry("b", 1))
    source.set("x", entry("a", 0) + "---\n" + entry("b", 2))
    assert ports(source) == {"a": 1, "b": 2}
    assert [p.object for p in source.problems] == [ObjectRef(ENTRY, "shop", "a")]
    source.set("x", entry("a", 3) + "---\n" + entry("b", 2))
    assert ports(source) == {"a": 3, "b": 2}
    assert list(source.problems) == []


def test_invalid_object_without_a_valid_version_is_absent(source: Source) -> None:
    source.set("x", entry("a", 0) + "---\n" + entry("b", 2))
    assert ports(source) == {"b": 2}


def test_first_document_wins_for_duplicate_objects(documents: Source) -> None:
    documents.set("y", entry("a", 2))
    documents.set("z", entry("a", 3))
    documents.set("x", entry("a", 1))
    assert ports(documents) == {"a": 1}
    assert [p.code for p in documents.problems] == ["duplicate-object"] * 2
    documents.remove("x")
    assert ports(documents) == {"a": 2}
    documents.remove("z")
    assert list(documents.problems) == []


def test_invalid_object_does_not_hide_a_valid_duplicate(documents: Source) -> None:
    documents.set("x", entry("a", 0))
    documents.set("y", entry("a", 2))
    assert ports(documents) == {"a": 2}


def test_problems_are_removed_with_their_document(source: Source) -> None:
    source.set("x", entry("a", 0))
    assert len(source.problems) == 1
    assert len(source.problems.of(ObjectRef(ENTRY, "shop", "a"))) == 1
    source.remove("x")
    assert len(source.problems) == 0


@pytest.mark.parametrize("kind", [MemoryConfigSource, ObjectConfigSource])
def test_lowest_rank_wins_for_duplicate_objects(kind: type[MemoryConfigSource]) -> None:
    low = kind(rank=2, name="a")
    high = kind(rank=1, name="z", shared_with=low)
    low.set("x", entry("a", 2) + "---\n" + entry("b", 2))
    assert ports(low) == {"a": 2, "b": 2}
    high.set("y", entry("a", 1))
    assert ports(low) == {"a": 1, "b": 2}
    (problem,) = low.problems
    assert (problem.code, problem.object.name) == ("duplicate-object", "a")
    assert problem.message.endswith((" defined in y, which takes precedence", " defined in z, which takes precedence"))
    low.set("x", entry("a", 3) + "---\n" + entry("b", 2))
    assert ports(low) == {"a": 1, "b": 2}
    high.remove("y")
    assert ports(low) == {"a": 3, "b": 2}
    assert list(low.problems) == []


def test_sources_with_equal_ranks_are_ordered_by_name() -> None:
    second = MemoryConfigSource(name="b")
    first = MemoryConfigSource(name="a", shared_with=second)
    second.set("x", entry("a", 2))
    first.set("y", entry("a", 1))
    assert ports(second) == {"a": 1}


def test_objects_missing_from_a_list_are_removed() -> None:
    source = ObjectConfigSource()
    other = MemoryConfigSource(rank=1, shared_with=source)
    other.set("x", entry("b", 9))
    source.set("x", entry("a", 1) + "---\n" + entry("b", 1) + "---\n" + entry("c", 0))
    assert (ports(source), len(source.problems)) == ({"a": 1, "b": 1}, 2)
    source.list(entry("a", 2) + "---\n" + entry("d", 2))
    assert ports(source) == {"a": 2, "b": 9, "d": 2}
    assert list(source.problems) == []


def test_object_that_is_no_longer_decoded_is_removed() -> None:
    source = ObjectConfigSource()
    source.set("x", entry("a", 1))
    row = (SERVICE_ENTRY.table_name, next(key for key, _ in SERVICE_ENTRY.table(source.mesh).rows()))
    source.batch.put(source.source.put(row, Decoded()))
    source.clock.advance(1)
    assert ports(source) == {}
    assert source.source.retain([]) == source.source.drop(row) == []


@pytest.mark.parametrize("kind", DOCUMENT_SOURCES)
def test_state_after_random_edits_equals_a_fresh_source(kind: str, seed: int, tmp_path: pathlib.Path) -> None:
    """After random edits of valid objects, rows and problems equal those of a source with only the last state."""
    rng = random.Random(seed)
    source = make(kind, tmp_path)
    state: dict[str, str] = {}
    for step in range(300):
        name = rng.choice("abcdef")
        if name in state and rng.random() < 0.3:
            del state[name]
            source.remove(name)
        else:
            names = rng.sample("uvwxyz", rng.randint(1, 4))
            state[name] = "---\n".join(entry(s, rng.randint(1, 5)) for s in names)
            source.set(name, state[name])
        if step % 30 == 29:
            with tempfile.TemporaryDirectory() as folder:
                reference = make(kind, pathlib.Path(folder))
                for other in sorted(state, key=lambda _: rng.random()):
                    reference.set(other, state[other])
                assert rows(source.mesh) == rows(reference.mesh), f"PYISTIOD_SEED={seed}, step {step}"
                assert sorted(p.code for p in source.problems) == sorted(p.code for p in reference.problems)
