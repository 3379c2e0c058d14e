"""What every source of configuration keeps, whichever it is. With KUBECONFIG set the API server is the one that it names, not the tests' own."""

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
    made = make(request.param, tmp_path)
    yield made
    if isinstance(made, KubeConfigSource | McpConfigSource):
        made.close()


@pytest.fixture(params=DOCUMENT_SOURCES)
def documents(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Source:
    return make(request.param, tmp_path)


def entry(name: str, port: int = 80) -> str:
    """A ServiceEntry, which any API server takes with a port that is wrong too: who defines it here says nothing of its fields."""
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
    "WorkloadEntry": "spec: {address: 1.1.1.1}",
    "WorkloadGroup": "spec: {template: {}}",
    "WasmPlugin": "spec: {url: 'oci://example.com/a'}",
    "TrafficExtension": "spec: {lua: {inlineCode: 'function envoy_on_request(h) end'}}",
    "Sidecar": "spec: {egress: [{hosts: ['./*']}]}",
}


def test_every_kind_goes_into_its_table(source: Source) -> None:
    with Rows() as rows:
        for kind in CATALOGUE:
            for version in kind.versions:
                api_version = f"{kind.id.group}/{version}".removeprefix("/")
                with rows.row(f"{api_version} {kind.id.name}"):
                    before = len(kind.table(source.mesh))
                    head = f"apiVersion: {api_version}\nkind: {kind.id.name}\nmetadata: {{name: a}}\n"
                    source.set("x", head + MINIMAL.get(kind.id.name, ""))
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


def test_what_no_proxy_can_notice_commits_nothing(source: Source) -> None:
    source.set("x", entry("a"))
    source.set(
        "x",
        entry("a").replace(
            "{name: a", "{resourceVersion: '2', uid: x, annotations: {a: b}, managedFields: [], name: a"
        ),
    )
    assert len(source.commits) == 1


def test_a_wrong_object_keeps_its_last_good_version(source: Source) -> None:
    source.set("x", entry("a", 1) + "---\n" + entry("b", 1))
    source.set("x", entry("a", 0) + "---\n" + entry("b", 2))
    assert ports(source) == {"a": 1, "b": 2}
    assert [p.object for p in source.problems] == [ObjectRef(ENTRY, "shop", "a")]
    source.set("x", entry("a", 3) + "---\n" + entry("b", 2))
    assert ports(source) == {"a": 3, "b": 2}
    assert list(source.problems) == []


def test_a_wrong_object_that_was_never_right_is_absent(source: Source) -> None:
    source.set("x", entry("a", 0) + "---\n" + entry("b", 2))
    assert ports(source) == {"b": 2}


def test_the_first_by_name_has_an_object_that_two_declare(documents: Source) -> None:
    documents.set("y", entry("a", 2))
    documents.set("z", entry("a", 3))
    documents.set("x", entry("a", 1))
    assert ports(documents) == {"a": 1}
    assert [p.code for p in documents.problems] == ["duplicate-object"] * 2
    documents.remove("x")
    assert ports(documents) == {"a": 2}
    documents.remove("z")
    assert list(documents.problems) == []


def test_a_wrong_object_does_not_hide_a_right_one(documents: Source) -> None:
    documents.set("x", entry("a", 0))
    documents.set("y", entry("a", 2))
    assert ports(documents) == {"a": 2}


def test_problems_go_with_their_source(source: Source) -> None:
    source.set("x", entry("a", 0))
    assert len(source.problems) == 1
    assert len(source.problems.of(ObjectRef(ENTRY, "shop", "a"))) == 1
    source.remove("x")
    assert len(source.problems) == 0


@pytest.mark.parametrize("kind", [MemoryConfigSource, ObjectConfigSource])
def test_the_source_of_the_lower_rank_has_an_object_that_two_declare(kind: type[MemoryConfigSource]) -> None:
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


def test_sources_of_one_rank_go_by_their_names() -> None:
    second = MemoryConfigSource(name="b")
    first = MemoryConfigSource(name="a", shared_with=second)
    second.set("x", entry("a", 2))
    first.set("y", entry("a", 1))
    assert ports(second) == {"a": 1}


def test_single_objects_that_a_complete_list_leaves_out_have_gone() -> None:
    source = ObjectConfigSource()
    other = MemoryConfigSource(rank=1, shared_with=source)
    other.set("x", entry("b", 9))
    source.set("x", entry("a", 1) + "---\n" + entry("b", 1) + "---\n" + entry("c", 0))
    assert (ports(source), len(source.problems)) == ({"a": 1, "b": 1}, 2)
    source.list(entry("a", 2) + "---\n" + entry("d", 2))
    assert ports(source) == {"a": 2, "b": 9, "d": 2}
    assert list(source.problems) == []


def test_a_single_object_that_is_not_read_any_more_goes() -> None:
    source = ObjectConfigSource()
    source.set("x", entry("a", 1))
    row = (SERVICE_ENTRY.table_name, next(key for key, _ in SERVICE_ENTRY.table(source.mesh).rows()))
    source.batch.put(source.source.put(row, Decoded()))
    source.clock.advance(1)
    assert ports(source) == {}
    assert source.source.retain([]) == source.source.drop(row) == []


@pytest.mark.parametrize("kind", DOCUMENT_SOURCES)
def test_whatever_happened_before_does_not_show(kind: str, seed: int, tmp_path: pathlib.Path) -> None:
    """After random edits of right objects, the rows and problems are those of a source that only ever saw the last state."""
    chance = random.Random(seed)
    source = make(kind, tmp_path)
    state: dict[str, str] = {}
    for step in range(300):
        name = chance.choice("abcdef")
        if name in state and chance.random() < 0.3:
            del state[name]
            source.remove(name)
        else:
            chosen = chance.sample("uvwxyz", chance.randint(1, 4))
            state[name] = "---\n".join(entry(s, chance.randint(1, 5)) for s in chosen)
            source.set(name, state[name])
        if step % 30 == 29:
            with tempfile.TemporaryDirectory() as folder:
                fresh = make(kind, pathlib.Path(folder))
                for other in sorted(state, key=lambda _: chance.random()):
                    fresh.set(other, state[other])
                assert rows(source.mesh) == rows(fresh.mesh), f"PYISTIOD_SEED={seed}, step {step}"
                assert sorted(p.code for p in source.problems) == sorted(p.code for p in fresh.problems)
