"""discoverySelectors: selection of namespaces, and changes of the selection at run time."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml

from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE
from pilot.config.object import Object
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.mesh.registry.services import service_refs
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, rows_of

MESH_ON = "{matchLabels: {mesh: 'on'}}"
TEAMS = "{matchExpressions: [{key: team, operator: In, values: [red, blue]}]}"


def namespace(name: str, labels: str) -> Plain:
    return make("Namespace", name, labels=labels)


def service(name: str, namespace: str) -> Plain:
    return make(
        "Service", name, "{clusterIP: 10.96.0.1, selector: {app: x}, ports: [{name: http, port: 80}]}", namespace
    )


def rule(namespace: str) -> Plain:
    return make("DestinationRule", "r", "{host: x.com}", namespace)


def mesh(*selectors: str) -> str:
    return f"discoverySelectors: [{', '.join(selectors)}]"


def set_mesh(harness: World, text: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(text)])
    assert config is not None, problems
    harness.commit([("MeshConfig", "mesh", config)])


def visible_services(harness: World) -> list[str]:
    return sorted(f"{ref.hostname.partition('.')[0]}.{ref.namespace}" for ref in service_refs(harness.mesh))


def all_rows(harness: World) -> dict[Any, Object[Any]]:
    tables = [kind.table(harness.mesh) for kind in harness.mesh.catalogue]
    return {(table.name, key): row for table in tables for key, row in table.rows()}


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ((), ["a.a", "b.b", "c.c", "d.d"]),
        ((MESH_ON,), ["a.a"]),
        ((MESH_ON, TEAMS), ["a.a", "b.b"]),
        (("{matchLabels: {mesh: 'on', team: red}}",), []),
        (("{}",), ["a.a", "b.b", "c.c", "d.d"]),
        (("{matchExpressions: [{key: team, operator: NotIn, values: [red]}]}",), ["a.a", "c.c", "d.d"]),
        (("{matchExpressions: [{key: team, operator: Exists}]}",), ["b.b", "c.c"]),
        (("{matchExpressions: [{key: team, operator: DoesNotExist}]}",), ["a.a", "d.d"]),
        (("{matchLabels: {kubernetes.io/metadata.name: d}}",), ["d.d"]),
    ],
)
def test_selectors_are_ored_and_their_terms_anded(selectors: tuple[str, ...], expected: list[str]) -> None:
    harness = World(mesh(*selectors))
    harness.set(
        rows_of([namespace("a", "{mesh: 'on'}"), namespace("b", "{team: red}"), namespace("c", "{team: green}")])
    )
    harness.set(rows_of([service(name, name) for name in "abcd"]))
    assert visible_services(harness) == expected


def test_namespaced_objects_require_a_selected_namespace() -> None:
    harness = World(mesh(MESH_ON))
    endpoint = [endpoint_slice("s", at("10.1.0.1", "p", namespace="b"), namespace="b"), pod("p", "10.1.0.1", "b")]
    harness.set(
        rows_of(
            [
                namespace("a", "{mesh: 'on'}"),
                namespace("b", "{}"),
                service("s", "b"),
                rule("b"),
                *endpoint,
                make("Node", "n"),
            ]
        )
    )
    assert {name for name, _ in all_rows(harness)} == {"Namespace", "Node"}
    harness.set(rows_of([rule("a")]))
    assert len(DESTINATION_RULE.table(harness.mesh)) == 1


def test_namespace_joins_and_leaves_with_its_objects() -> None:
    harness = World(mesh(MESH_ON))
    objects = [service("s", "b"), rule("b"), endpoint_slice("s", at("10.1.0.1"), namespace="b")]
    harness.set(rows_of([namespace("b", "{}"), *objects]))
    assert visible_services(harness) == []
    harness.set(rows_of([namespace("b", "{mesh: 'on'}")]))
    assert (visible_services(harness), len(DESTINATION_RULE.table(harness.mesh))) == (["s.b"], 1)
    harness.set(rows_of([namespace("b", "{}")]))
    assert (
        visible_services(harness),
        len(DESTINATION_RULE.table(harness.mesh)),
        len(ENDPOINT_SLICE.table(harness.mesh)),
    ) == ([], 0, 0)
    harness.set(dict.fromkeys(rows_of([rule("b")]), None))
    harness.set(rows_of([namespace("b", "{mesh: 'on'}")]))
    assert (visible_services(harness), len(DESTINATION_RULE.table(harness.mesh))) == (["s.b"], 0)
    harness.set(dict.fromkeys(rows_of([namespace("b", "{}")]), None))
    assert visible_services(harness) == []


def test_changed_selectors_apply_immediately() -> None:
    harness = World()
    harness.set(
        rows_of([namespace("a", "{mesh: 'on'}"), namespace("b", "{team: red}"), service("s", "a"), service("s", "b")])
    )
    for text, expected in (
        (mesh(MESH_ON), ["s.a"]),
        (mesh(TEAMS), ["s.b"]),
        ("{}", ["s.a", "s.b"]),
        (mesh(MESH_ON), ["s.a"]),
    ):
        set_mesh(harness, text)
        assert visible_services(harness) == expected


def test_namespace_is_selected_by_its_labels_in_each_cluster() -> None:
    harness = World(mesh(MESH_ON))
    harness.set(
        rows_of([namespace("a", "{mesh: 'on'}"), service("home", "a")])
        | rows_of([namespace("a", "{}"), service("west", "a")], "west")
    )
    assert visible_services(harness) == ["home.a"]
    harness.set(rows_of([namespace("a", "{}")]) | rows_of([namespace("a", "{mesh: 'on'}")], "west"))
    assert visible_services(harness) == ["west.a"]


@pytest.mark.parametrize("run", range(8))
def test_random_edits_lead_to_the_same_tables_as_a_fresh_start(seed: int, run: int) -> None:
    rng = random.Random(f"{seed} {run}")
    slots = [
        [rows_of([namespace(n, labels)], c) for labels in ("{}", "{mesh: 'on'}", "{team: red}")]
        for n in "ab"
        for c in ("Kubernetes", "west")
    ]
    slots += [[rows_of([service("s", n)], c)] for n in "ab" for c in ("Kubernetes", "west")] + [
        [rows_of([rule(n)])] for n in "ab"
    ]
    meshes = ["{}", mesh(MESH_ON), mesh(MESH_ON, TEAMS), mesh("{}")]
    harness, text = World(), "{}"
    current: list[Any] = [{} for _ in slots]
    for _ in range(40):
        for index in rng.sample(range(len(slots)), rng.randint(0, 3)):
            new = rng.choice([*slots[index], {}])
            harness.set(dict.fromkeys(current[index]) | new)
            current[index] = new
        if rng.random() < 0.3:
            text = rng.choice(meshes)
            set_mesh(harness, text)
        scratch = World(text)
        scratch.set({key: row for rows in current for key, row in rows.items()})
        assert all_rows(harness) == all_rows(scratch)


@pytest.mark.parametrize(
    ("selector", "path"),
    [
        ("{matchExpressions: [{key: a, operator: Near}]}", "discoverySelectors[0].matchExpressions[0].operator"),
        ("{matchExpressions: [{key: a, operator: In}]}", "discoverySelectors[0].matchExpressions[0].values"),
        (
            "{matchExpressions: [{key: a, operator: Exists, values: [x]}]}",
            "discoverySelectors[0].matchExpressions[0].values",
        ),
        ("{matchExpressions: [{operator: Exists}]}", "discoverySelectors[0].matchExpressions[0].key"),
    ],
)
def test_invalid_selector_is_rejected(selector: str, path: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(mesh(selector))])
    assert config is None
    assert [p.path for p in problems] == [path]
