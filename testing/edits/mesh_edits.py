"""Random edits of a whole mesh, and what its proxies get: of one that lives through them, and of one that starts from scratch."""

from __future__ import annotations

import functools
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from pilot.ingest.mesh_config import decode_mesh_config, decode_mesh_networks
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import EVERY_ACCOUNT
from testing.edits.mesh_slots import ASKED, SLOTS
from testing.mesh.world import World, rows_of

Rows = Mapping[tuple[str, Any], Any]
"""Rows by table and key; None for one that goes."""
Snapshot = dict[str, dict[str, dict[str, bytes]]]
"""Resources by node id, type URL and name."""
EMPTY = -1
BASE: Mapping[str, Mapping[str, str]] = {"mesh": {"ingressSelector": "ingress"}, "networks": {}}
"""What every mesh config says: Ingresses are for the router of these meshes."""
FLAGS = {  # settings that make more of the mesh matter
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
    """The id that a proxy connects by, whatever its metadata says now."""
    return f"{proxy.type}~{proxy.id}~{proxy.cluster_id}"


NODE_IDS = tuple(dict.fromkeys(node_id(v) for slot in SLOTS if slot.kind == "proxy" for v in slot.variants))


@functools.cache
def rows_at(slot: int, variant: int) -> Rows:
    """The rows of a slot at one of its variants, or EMPTY; of the mesh config there is always one."""
    kind, variants = SLOTS[slot].kind, SLOTS[slot].variants
    if kind == "object":
        rows = rows_of([variants[variant]], SLOTS[slot].cluster) if variant != EMPTY else {}
        assert rows or variant == EMPTY, f"{SLOTS[slot].name}: no kind of ours"
        return rows
    if kind == "rows":
        return dict(variants[variant]) if variant != EMPTY else {}
    if kind == "proxy":
        return {("Proxy", node_id(variants[variant])): variants[variant]} if variant != EMPTY else {}
    decode = (lambda plain: decode_mesh_config([plain])) if kind == "mesh" else decode_mesh_networks
    found, problems = decode({**BASE[kind], **(yaml.safe_load(variants[variant]) if variant != EMPTY else {})})
    assert found is not None, problems
    return {("MeshConfig", kind): found}


class Step(NamedTuple):
    """`slots`: those that were edited. `rows`: what that edits. `state`: the variant of every slot after it."""

    slots: tuple[int, ...]
    rows: Rows
    state: tuple[int, ...]

    def __str__(self) -> str:
        return ", ".join(
            f"{SLOTS[i].name} → {'nothing' if self.state[i] == EMPTY else f'variant {self.state[i]}'}"
            for i in self.slots
        )


def draw(choose: random.Random, slot: int) -> int:
    return EMPTY if choose.random() < SLOTS[slot].empty else choose.randrange(len(SLOTS[slot].variants))


def random_steps(choose: random.Random, count: int) -> Iterator[Step]:
    """A first step that sets every slot, and random edits after it; most are of one slot, so that no other edit hides what one should do.

    Slots come in a random order, each once before any comes again, so that a course soon has been everywhere.
    """
    state = [draw(choose, slot) for slot in range(len(SLOTS))]
    yield Step(tuple(range(len(SLOTS))), rows_of_state(state), tuple(state))
    deck: list[int] = []
    for _ in range(count):
        if len(deck) < 3:
            deck = choose.sample(range(len(SLOTS)), len(SLOTS))
        slots = tuple(deck.pop() for _ in range(choose.choice((1, 1, 1, 2, 3))))
        rows: dict[tuple[str, Any], Any] = {}
        for slot in slots:
            old, state[slot] = state[slot], draw(choose, slot)
            rows |= dict.fromkeys(rows_at(slot, old)) | dict(rows_at(slot, state[slot]))
        yield Step(slots, rows, tuple(state))


def tour(choose: random.Random, calm: bool, among: Sequence[int] = range(len(SLOTS))) -> Iterator[Step]:
    """A first step that sets every slot, and after it each slot (of those `among`) in turn is at each of its variants, and empty, while the
    others stay.

    `calm`: what hides much of a mesh is there only in its turn, everything else is at its first variant between turns.
    """
    state = [(EMPTY if slot.empty >= 0.4 else 0) if calm else draw(choose, number) for number, slot in enumerate(SLOTS)]
    yield Step(tuple(range(len(SLOTS))), rows_of_state(state), tuple(state))
    for slot in choose.sample(among, len(among)):
        home, variants = state[slot], range(EMPTY, len(SLOTS[slot].variants))
        for variant in (*choose.sample(variants, len(variants)), home if calm else draw(choose, slot)):
            old, state[slot] = state[slot], variant
            yield Step((slot,), dict.fromkeys(rows_at(slot, old)) | dict(rows_at(slot, variant)), tuple(state))


def rows_of_state(state: Sequence[int]) -> Rows:
    return {key: row for slot, variant in enumerate(state) for key, row in rows_at(slot, variant).items()}


def bare(flags: Mapping[str, str]) -> World:
    """A mesh with nothing in it, not even the leave to read Secrets."""
    world = World(environ=flags)
    world.asks = ASKED
    world.mesh.commit([(world.mesh.secret_access, EVERY_ACCOUNT, None)])
    return world


def start(rows: Rows, flags: Mapping[str, str]) -> World:
    world = bare(flags)
    world.set(rows)
    return world


def snapshot(world: World, node_ids: Iterable[str] = NODE_IDS) -> Snapshot:
    return {
        node: {url: {name: r.any for name, r in have.items()} for url, have in world.resources(node).items()}
        for node in node_ids
    }


def difference(got: Snapshot, want: Snapshot) -> list[str]:
    """What is not as it should be: "node, type, resource"."""
    rows = []
    for node, types in want.items():
        for url in types.keys() | got[node].keys():
            ours, fresh = got[node].get(url, {}), types.get(url, {})
            rows += [
                f"{node} {url.rpartition('.')[2]} {name}"
                for name in sorted(ours.keys() | fresh.keys())
                if ours.get(name) != fresh.get(name)
            ]
    return rows


class Course(NamedTuple):
    """Random edits of one seed, what proxies are to get after each, and where it is looked at, what is left of the graph when it is swept."""

    flags: Mapping[str, str]
    steps: tuple[Step, ...]
    wanted: tuple[Snapshot, ...]
    needed: tuple[Collection[Any] | None, ...]


def course(seed: str, count: int, flags: Mapping[str, str]) -> Course:
    """What is wanted is what a fresh start gives; every third time what it needs is looked at."""
    steps = tuple(random_steps(random.Random(seed), count))
    wanted: list[Snapshot] = []
    needed: list[Collection[Any] | None] = []
    for number, step in enumerate(steps):
        fresh = start(rows_of_state(step.state), flags)
        wanted.append(snapshot(fresh))
        if number % 3 == 2:
            fresh.sweep()
        needed.append(fresh.graph().keys() if number % 3 == 2 else None)
    return Course(flags, steps, tuple(wanted), tuple(needed))


def live(steps: Iterable[Step], flags: Mapping[str, str]) -> Iterator[tuple[Step, World]]:
    """Each step, and the one mesh that lives through them, after it."""
    world = bare(flags)
    for step in steps:
        world.set(step.rows)
        yield step, world


def first_wrong(course: Course) -> tuple[Step, list[str]] | None:
    """The first step after which a mesh that lived through all of them has what is not wanted or not needed, or in which a derivation failed."""
    for (step, world), want, needed in zip(live(course.steps, course.flags), course.wanted, course.needed, strict=True):
        got = snapshot(world)
        if got != want or world.failures:
            return step, [*difference(got, want), *world.failures]
        if needed is not None:
            world.sweep()
            if surplus := world.graph().keys() - needed:
                return step, [f"nobody needs {name}" for name in surplus]
    return None


def reached_kinds(seed: str, flags: Mapping[str, str]) -> set[str]:
    """The kinds of which some edit, of one slot of a random mesh, changes what some proxy gets."""
    choose = random.Random(seed)
    state = [draw(choose, slot) for slot in range(len(SLOTS))]
    world, found = start(rows_of_state(state), flags), set[str]()
    before = snapshot(world)
    for slot, (at_first, variants) in enumerate(zip(state, SLOTS, strict=True)):
        for variant in range(EMPTY, len(variants.variants)):
            if variants.table in found:
                break
            world.set(dict.fromkeys(rows_at(slot, at_first)) | dict(rows_at(slot, variant)))
            if snapshot(world) != before:
                found.add(variants.table)
            world.set(dict.fromkeys(rows_at(slot, variant)) | dict(rows_at(slot, at_first)))
    return found
