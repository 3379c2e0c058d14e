"""Random edits of a whole mesh, applied to a long-lived mesh and compared with a mesh built from scratch."""

from __future__ import annotations

import functools
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from pilot.ingest.mesh_config import decode_mesh_config, decode_mesh_networks
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import EVERY_ACCOUNT
from testing.edits.mesh_slots import SLOTS, SUBSCRIPTIONS
from testing.mesh.world import World, rows_of

Rows = Mapping[tuple[str, Any], Any]
"""Rows by table and key. None deletes a row."""
Snapshot = dict[str, dict[str, dict[str, bytes]]]
"""Resources by node id, type URL and name."""
EMPTY = -1
BASE: Mapping[str, Mapping[str, str]] = {"mesh": {"ingressSelector": "ingress"}, "networks": {}}
"""Base of every mesh config. Ingresses select the router of these meshes."""
FLAGS = {  # settings that enable more features
    "PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER": "true",
    "PILOT_ENABLE_PERSISTENT_SESSION_FILTER": "true",
    "PILOT_FILTER_GATEWAY_CLUSTER_CONFIG": "true",
    "ENABLE_PROXY_FIND_POD_BY_IP": "true",
    "ENABLE_HCM_INTERNAL_NETWORKS": "true",
    "PILOT_SCOPE_GATEWAY_TO_NAMESPACE": "true",
    "PILOT_ENABLE_ALPHA_GATEWAY_API": "true",
    "ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true",
    "ENABLE_MCS_SERVICE_DISCOVERY": "true",
    "ENABLE_MCS_HOST": "true",
    "K8S_INGRESS_NS": "edge",
    "PILOT_ENABLE_AMBIENT": "true",
    "AMBIENT_ENABLE_MULTI_NETWORK": "true",
    "AMBIENT_ENABLE_MULTI_NETWORK_INGRESS": "true",
    "ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES": "true",
}


def node_id(proxy: Proxy) -> str:
    """Return a proxy's stable node id, which does not depend on its current metadata."""
    return f"{proxy.type}~{proxy.id}~{proxy.cluster_id}"


NODE_IDS = tuple(dict.fromkeys(node_id(v) for slot in SLOTS if slot.kind == "proxy" for v in slot.variants))


@functools.cache
def rows_at(slot: int, variant: int) -> Rows:
    """Return the rows of a slot for one of its variants, or for EMPTY. The mesh config always has a row."""
    kind, variants = SLOTS[slot].kind, SLOTS[slot].variants
    if kind == "object":
        rows = rows_of([variants[variant]], SLOTS[slot].cluster) if variant != EMPTY else {}
        assert rows or variant == EMPTY, f"{SLOTS[slot].name}: unsupported kind"
        return rows
    if kind == "rows":
        return dict(variants[variant]) if variant != EMPTY else {}
    if kind == "proxy":
        return {("Proxy", node_id(variants[variant])): variants[variant]} if variant != EMPTY else {}
    decode = (lambda plain: decode_mesh_config([plain])) if kind == "mesh" else decode_mesh_networks
    config, problems = decode({**BASE[kind], **(yaml.safe_load(variants[variant]) if variant != EMPTY else {})})
    assert config is not None, problems
    return {("MeshConfig", kind): config}


class Step(NamedTuple):
    """One edit.

    `slots` are the edited slots, `rows` the changed rows, and `state` the variant of every slot afterwards.
    """

    slots: tuple[int, ...]
    rows: Rows
    state: tuple[int, ...]

    def __str__(self) -> str:
        return ", ".join(
            f"{SLOTS[i].name} → {'nothing' if self.state[i] == EMPTY else f'variant {self.state[i]}'}"
            for i in self.slots
        )


def draw_variant(rng: random.Random, slot: int) -> int:
    """Return a random variant of a slot, or EMPTY."""
    return EMPTY if rng.random() < SLOTS[slot].empty else rng.randrange(len(SLOTS[slot].variants))


def random_steps(rng: random.Random, count: int) -> Iterator[Step]:
    """Yield a first step that sets every slot, and random edits after it.

    Most steps edit only one slot, so that no other edit masks it. Slots come in random order, each once before any is
    repeated, so that every slot is edited early.
    """
    state = [draw_variant(rng, slot) for slot in range(len(SLOTS))]
    yield Step(tuple(range(len(SLOTS))), rows_of_state(state), tuple(state))
    deck: list[int] = []
    for _ in range(count):
        if len(deck) < 3:
            deck = rng.sample(range(len(SLOTS)), len(SLOTS))
        slots = tuple(deck.pop() for _ in range(rng.choice((1, 1, 1, 2, 3))))
        rows: dict[tuple[str, Any], Any] = {}
        for slot in slots:
            old, state[slot] = state[slot], draw_variant(rng, slot)
            rows |= dict.fromkeys(rows_at(slot, old)) | dict(rows_at(slot, state[slot]))
        yield Step(slots, rows, tuple(state))


def tour(rng: random.Random, calm: bool, among: Sequence[int] = range(len(SLOTS))) -> Iterator[Step]:
    """Yield a first step that sets every slot, and then every variant of one slot after the other.

    Other slots stay unchanged meanwhile. With `calm`, variants that hide much of the mesh are present only in their
    turn; everything else has its first variant between turns. `among` restricts the slots.
    """
    state = [
        (EMPTY if slot.empty >= 0.4 else 0) if calm else draw_variant(rng, number) for number, slot in enumerate(SLOTS)
    ]
    yield Step(tuple(range(len(SLOTS))), rows_of_state(state), tuple(state))
    for slot in rng.sample(among, len(among)):
        initial, variants = state[slot], range(EMPTY, len(SLOTS[slot].variants))
        for variant in (*rng.sample(variants, len(variants)), initial if calm else draw_variant(rng, slot)):
            old, state[slot] = state[slot], variant
            yield Step((slot,), dict.fromkeys(rows_at(slot, old)) | dict(rows_at(slot, variant)), tuple(state))


def rows_of_state(state: Sequence[int]) -> Rows:
    """Return the rows of all slots."""
    return {key: row for slot, variant in enumerate(state) for key, row in rows_at(slot, variant).items()}


def empty_mesh(flags: Mapping[str, str]) -> World:
    """Return a mesh without rows, in which no account may read Secrets."""
    world = World(environ=flags)
    world.subscriptions = SUBSCRIPTIONS
    world.mesh.commit([(world.mesh.secret_access, EVERY_ACCOUNT, None)])
    return world


def start(rows: Rows, flags: Mapping[str, str]) -> World:
    """Return a mesh with these rows."""
    world = empty_mesh(flags)
    world.set(rows)
    return world


def snapshot(world: World, node_ids: Iterable[str] = NODE_IDS) -> Snapshot:
    """Return the resources of all proxies."""
    return {
        node: {url: {name: r.any for name, r in resources.items()} for url, resources in world.resources(node).items()}
        for node in node_ids
    }


def difference(actual: Snapshot, expected: Snapshot) -> list[str]:
    """Return the differences between two snapshots as lines "node type resource"."""
    rows = []
    for node, types in expected.items():
        for url in types.keys() | actual[node].keys():
            actual_resources, expected_resources = actual[node].get(url, {}), types.get(url, {})
            rows += [
                f"{node} {url.rpartition('.')[2]} {name}"
                for name in sorted(actual_resources.keys() | expected_resources.keys())
                if actual_resources.get(name) != expected_resources.get(name)
            ]
    return rows


class Scenario(NamedTuple):
    """Random edits with the expected results.

    `expected` is the snapshot after each step. `kept_nodes` are the derived nodes that a sweep should keep, where
    checked.
    """

    flags: Mapping[str, str]
    steps: tuple[Step, ...]
    expected: tuple[Snapshot, ...]
    kept_nodes: tuple[Collection[Any] | None, ...]


def random_scenario(seed: str, count: int, flags: Mapping[str, str]) -> Scenario:
    """Return random edits for a seed.

    A mesh built from scratch gives the expected snapshots and, every third time, the nodes.
    """
    steps = tuple(random_steps(random.Random(seed), count))
    expected: list[Snapshot] = []
    kept_nodes: list[Collection[Any] | None] = []
    for number, step in enumerate(steps):
        fresh = start(rows_of_state(step.state), flags)
        expected.append(snapshot(fresh))
        if number % 3 == 2:
            fresh.sweep()
        kept_nodes.append(fresh.graph().keys() if number % 3 == 2 else None)
    return Scenario(flags, steps, tuple(expected), tuple(kept_nodes))


def replay(steps: Iterable[Step], flags: Mapping[str, str]) -> Iterator[tuple[Step, World]]:
    """Apply steps to one mesh, and yield each step and the mesh."""
    world = empty_mesh(flags)
    for step in steps:
        world.set(step.rows)
        yield step, world


def first_mismatch(scenario: Scenario) -> tuple[Step, list[str]] | None:
    """Return the first step after which a mesh with all edits differs from what is expected or a derivation failed."""
    for (step, world), expected, kept_nodes in zip(
        replay(scenario.steps, scenario.flags), scenario.expected, scenario.kept_nodes, strict=True
    ):
        actual = snapshot(world)
        if actual != expected or world.failures:
            return step, [*difference(actual, expected), *world.failures]
        if kept_nodes is not None:
            world.sweep()
            if surplus := world.graph().keys() - kept_nodes:
                return step, [f"not swept: {name}" for name in surplus]
    return None


def effective_kinds(seed: str, flags: Mapping[str, str]) -> set[str]:
    """Return the kinds for which some edit of one slot of a random mesh changes a proxy's resources."""
    rng = random.Random(seed)
    state = [draw_variant(rng, slot) for slot in range(len(SLOTS))]
    world, kinds = start(rows_of_state(state), flags), set[str]()
    baseline = snapshot(world)
    for slot, (initial, slot_definition) in enumerate(zip(state, SLOTS, strict=True)):
        for variant in range(EMPTY, len(slot_definition.variants)):
            if slot_definition.table in kinds:
                break
            world.set(dict.fromkeys(rows_at(slot, initial)) | dict(rows_at(slot, variant)))
            if snapshot(world) != baseline:
                kinds.add(slot_definition.table)
            world.set(dict.fromkeys(rows_at(slot, variant)) | dict(rows_at(slot, initial)))
    return kinds
