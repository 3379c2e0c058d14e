"""discoverySelectors: which namespaces count, and namespaces that join and leave live."""

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

ON = "{matchLabels: {mesh: 'on'}}"
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


def set_mesh(world: World, text: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(text)])
    assert config is not None, problems
    world.commit([("MeshConfig", "mesh", config)])


def seen(world: World) -> list[str]:
    return sorted(f"{ref.hostname.partition('.')[0]}.{ref.namespace}" for ref in service_refs(world.mesh))


def everything(world: World) -> dict[Any, Object[Any]]:
    tables = [kind.table(world.mesh) for kind in world.mesh.catalogue]
    return {(table.name, key): row for table in tables for key, row in table.rows()}


@pytest.mark.parametrize(
    ("selectors", "found"),
    [
        ((), ["a.a", "b.b", "c.c", "d.d"]),
        ((ON,), ["a.a"]),
        ((ON, TEAMS), ["a.a", "b.b"]),
        (("{matchLabels: {mesh: 'on', team: red}}",), []),
        (("{}",), ["a.a", "b.b", "c.c", "d.d"]),
        (("{matchExpressions: [{key: team, operator: NotIn, values: [red]}]}",), ["a.a", "c.c", "d.d"]),
        (("{matchExpressions: [{key: team, operator: Exists}]}",), ["b.b", "c.c"]),
        (("{matchExpressions: [{key: team, operator: DoesNotExist}]}",), ["a.a", "d.d"]),
        (("{matchLabels: {kubernetes.io/metadata.name: d}}",), ["d.d"]),
    ],
)
def test_selectors_are_joined_by_or_and_their_parts_by_and(selectors: tuple[str, ...], found: list[str]) -> None:
    made = World(mesh(*selectors))
    made.set(rows_of([namespace("a", "{mesh: 'on'}"), namespace("b", "{team: red}"), namespace("c", "{team: green}")]))
    made.set(rows_of([service(name, name) for name in "abcd"]))
    assert seen(made) == found


def test_objects_of_every_kind_count_only_in_selected_namespaces_and_a_node_always() -> None:
    made = World(mesh(ON))
    endpoint = [endpoint_slice("s", at("10.1.0.1", "p", namespace="b"), namespace="b"), pod("p", "10.1.0.1", "b")]
    made.set(
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
    assert {name for name, _ in everything(made)} == {"Namespace", "Node"}
    made.set(rows_of([rule("a")]))
    assert len(DESTINATION_RULE.table(made.mesh)) == 1


def test_a_namespace_joins_and_leaves_with_all_that_it_has() -> None:
    made = World(mesh(ON))
    objects = [service("s", "b"), rule("b"), endpoint_slice("s", at("10.1.0.1"), namespace="b")]
    made.set(rows_of([namespace("b", "{}"), *objects]))
    assert seen(made) == []
    made.set(rows_of([namespace("b", "{mesh: 'on'}")]))
    assert (seen(made), len(DESTINATION_RULE.table(made.mesh))) == (["s.b"], 1)
    made.set(rows_of([namespace("b", "{}")]))
    assert (seen(made), len(DESTINATION_RULE.table(made.mesh)), len(ENDPOINT_SLICE.table(made.mesh))) == ([], 0, 0)
    made.set(dict.fromkeys(rows_of([rule("b")]), None))
    made.set(rows_of([namespace("b", "{mesh: 'on'}")]))
    assert (seen(made), len(DESTINATION_RULE.table(made.mesh))) == (["s.b"], 0)
    made.set(dict.fromkeys(rows_of([namespace("b", "{}")]), None))
    assert seen(made) == []


def test_other_selectors_bring_and_take_namespaces_at_once() -> None:
    made = World()
    made.set(
        rows_of([namespace("a", "{mesh: 'on'}"), namespace("b", "{team: red}"), service("s", "a"), service("s", "b")])
    )
    for text, found in ((mesh(ON), ["s.a"]), (mesh(TEAMS), ["s.b"]), ("{}", ["s.a", "s.b"]), (mesh(ON), ["s.a"])):
        set_mesh(made, text)
        assert seen(made) == found


def test_a_namespace_is_judged_by_the_labels_that_it_has_in_its_cluster() -> None:
    made = World(mesh(ON))
    made.set(
        rows_of([namespace("a", "{mesh: 'on'}"), service("home", "a")])
        | rows_of([namespace("a", "{}"), service("west", "a")], "west")
    )
    assert seen(made) == ["home.a"]
    made.set(rows_of([namespace("a", "{}")]) | rows_of([namespace("a", "{mesh: 'on'}")], "west"))
    assert seen(made) == ["west.a"]


@pytest.mark.parametrize("run", range(8))
def test_any_order_of_edits_leads_to_the_same_tables(seed: int, run: int) -> None:
    chance = random.Random(f"{seed} {run}")
    slots = [
        [rows_of([namespace(n, labels)], c) for labels in ("{}", "{mesh: 'on'}", "{team: red}")]
        for n in "ab"
        for c in ("Kubernetes", "west")
    ]
    slots += [[rows_of([service("s", n)], c)] for n in "ab" for c in ("Kubernetes", "west")] + [
        [rows_of([rule(n)])] for n in "ab"
    ]
    meshes = ["{}", mesh(ON), mesh(ON, TEAMS), mesh("{}")]
    live, text = World(), "{}"
    have: list[Any] = [{} for _ in slots]
    for _ in range(40):
        for index in chance.sample(range(len(slots)), chance.randint(0, 3)):
            new = chance.choice([*slots[index], {}])
            live.set(dict.fromkeys(have[index]) | new)
            have[index] = new
        if chance.random() < 0.3:
            text = chance.choice(meshes)
            set_mesh(live, text)
        scratch = World(text)
        scratch.set({key: row for rows in have for key, row in rows.items()})
        assert everything(live) == everything(scratch)


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
def test_a_selector_that_cannot_be_understood_is_refused(selector: str, path: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(mesh(selector))])
    assert config is None
    assert [p.path for p in problems] == [path]
