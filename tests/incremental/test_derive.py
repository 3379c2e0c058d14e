"""Random edit sequences on a small mesh-like world: incremental equals scratch, no push is missed, no node leaks."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pilot.derive import Collection, Database, Gather, Node, Table, derived, hub

HOSTS = [f"h{i}" for i in range(7)]
NAMESPACES = ["a", "b", "public"]
SEQUENCES, STEPS, PARTS = 1_500, 14, 3


class World(Database):
    """Services in namespaces, and rules that name two hosts each."""

    def __init__(self) -> None:
        super().__init__()
        self.services: Table[str, dict[str, Any]] = Table(self, "service", namespace=lambda _, row: [row["namespace"]])
        self.rules: Table[str, dict[str, Any]] = Table(self, "rule", host=lambda _, row: row["hosts"])


@derived
def every_service(db: World) -> tuple[str, ...]:
    return db.services.all_keys()


@derived
def own_rules(db: World, host: str) -> dict[str, dict[str, Any]] | None:
    """A service with ip 2 makes two rules: one of its own, and one that a row of the table or another service may stand before."""
    row = db.services.get(host)
    if row is None or row["ip"] != 2:
        return None
    return {f"of {host}": {"hosts": (host, "h0"), "weight": 1}, "r0": {"hosts": ("h1", host), "weight": 2}}


own_rules_by_host = Gather("own_rules_by_host", every_service, own_rules)


@derived
def service_rules(db: World) -> dict[str, dict[str, Any]]:
    return {key: row for made in own_rules_by_host(db).values() for key, row in made.items()}


@derived
def namespace_rules(db: World) -> dict[str, dict[str, Any]]:
    """Fails where all services are in one namespace."""
    if len(found := {row["namespace"] for key in db.services.all_keys() if (row := db.services.get(key))}) == 1:
        raise ValueError("one namespace")
    return {f"of {name}": {"hosts": ("h0", "h1"), "weight": index % 3} for index, name in enumerate(sorted(found))}


rules: Collection[str, dict[str, Any]] = Collection("rule", "rule")
rules.add_source(service_rules)
all_rules: Collection[str, dict[str, Any]] = Collection("any rule", "rule")
all_rules.add_source(namespace_rules)
all_rules.add_source(service_rules)


@derived
def rules_of(db: World, host: str) -> tuple[tuple[str, int], ...]:
    return tuple((key, row["weight"]) for key in rules.keys(db, "host", host) if (row := rules.get(db, key)))


@derived
def all_rules_of(db: World, viewer: str) -> tuple[Any, ...]:
    """A reader of one row, of one bucket or of every key; of a failed source it is the failure."""
    try:
        if viewer == "nobody":
            return all_rules.all_keys(db)
        row = all_rules.get(db, f"of {viewer}")
        return (
            row and row["weight"],
            all_rules.keys(db, "host", "h1" if viewer == "a" else "h3"),
            all_rules.get(db, "r0"),
        )
    except ValueError as error:
        return (str(error),)


@hub
def parity(db: World, host: str) -> int:
    return sum(weight for _, weight in rules_of(db, host)) % 2


@derived
def virtual_host(db: World, host: str, viewer: str) -> tuple[Any, ...] | None:
    row = db.services.get(host)
    if row is None or row["ip"] == 3:
        return None
    return (host, row["ip"], parity(db, host) if row["namespace"] == viewer else rules_of(db, host))


@hub
def visible(db: World, viewer: str) -> tuple[str, ...]:
    public = db.services.keys("namespace", "public") if viewer != "public" else ()
    return db.services.keys("namespace", viewer) + public


@derived
def strict(db: World, viewer: str) -> tuple[int, ...]:
    """Fails where a rule of a visible host weighs 3: failures are memoised and must go away as values do."""
    weights = [weight for host in visible(db, viewer) for _, weight in rules_of(db, host)]
    if 3 in weights:
        raise ValueError(f"{viewer} is too heavy")
    return tuple(weights)


@derived
def tolerant(db: World, viewer: str) -> str:
    try:
        return str(strict(db, viewer))
    except ValueError as error:
        return str(error)


table = Gather("table", visible, virtual_host)


@hub
def heaviest(db: World, viewer: str) -> int:
    """A hub of hubs, with a value of its own that seldom changes."""
    return max((parity(db, host) + len(names(db, viewer)) // 3 for host in visible(db, viewer)), default=-1)


@derived
def verdict(db: World, viewer: str) -> str:
    return f"{viewer}: {heaviest(db, viewer)} {heaviest(db, 'public')} {parity(db, 'h0')}"


@derived
def names(db: World, viewer: str) -> tuple[str, ...]:
    return tuple(table(db, viewer))


ROOTS = [
    (fn, viewer)
    for fn in (table, names, tolerant, verdict, heaviest, all_rules_of)
    for viewer in (*NAMESPACES, "nobody")
]


def random_edits(choose: random.Random) -> list[tuple[str, str, dict[str, Any] | None]]:
    edits: dict[tuple[str, str], dict[str, Any] | None] = {}
    for _ in range(choose.randint(1, 3)):
        gone = choose.random() < 0.3
        if choose.random() < 0.5:
            edits["services", choose.choice(HOSTS)] = (
                None if gone else {"namespace": choose.choice(NAMESPACES), "ip": choose.randint(0, 3)}
            )
        else:
            hosts = tuple(sorted(choose.sample(HOSTS, 2)))
            edits["rules", f"r{choose.randint(0, 5)}"] = (
                None if gone else {"hosts": hosts, "weight": choose.randint(0, 3)}
            )
    return [(name, key, row) for (name, key), row in edits.items()]


def scratch(world: World) -> World:
    fresh = World()
    fresh.commit(
        [(getattr(fresh, name), key, row) for name in ("services", "rules") for key, row in getattr(world, name).rows()]
    )
    return fresh


def graph(world: World) -> dict[Any, set[Any]]:
    """Every node by its name and arguments, with those of its inputs."""
    return {repr(node): {repr(source) for source in node.inputs()} for node in world.live_nodes()}


def run_sequence(seed: int) -> None:
    choose, world = random.Random(seed), World()
    watched: dict[Any, Node] = {}
    for step in range(STEPS):
        before = {root: node.value for root, node in watched.items()}
        reported = world.commit([(getattr(world, name), key, row) for name, key, row in random_edits(choose)])
        fresh = scratch(world)
        for root in ROOTS:
            fn, viewer = root
            if choose.random() < 0.1:  # a part of a sweep: others have their turns before the next one
                world.collect_some(choose.randint(1, 8))
            if choose.random() < 0.2:
                if root in watched:
                    world.unwatch(watched.pop(root))
                else:
                    watched[root] = world.watch(fn, viewer)
            if root not in watched:
                if choose.random() < 0.1:
                    assert fn(world, viewer) == fn(fresh, viewer), f"seed {seed} step {step}: {root}, read from outside"
                continue
            node, want = watched[root], fresh.watch(fn, viewer).value
            if root in before and before[root] != want:
                assert node in reported, f"seed {seed} step {step}: {root} changed and was not reported"
            world.refresh(node)
            assert node.value == want, f"seed {seed} step {step}: {root}"
            if fn is table:
                assert list(node.value) == list(want), f"seed {seed} step {step}: {root} is in another order"
        if choose.random() < 0.3:
            for of in (world, fresh):
                of.collect()
            assert graph(world) == graph(fresh), f"seed {seed} step {step}: what is alive is not what is watched"
    for node in watched.values():
        world.unwatch(node)
    world.collect()
    assert len(world) == 0, f"seed {seed}: nodes that nothing watches are alive"


@pytest.mark.parametrize("part", range(PARTS))
def test_incremental_equals_scratch(seed: int, part: int) -> None:
    for number in range(SEQUENCES // PARTS):
        run_sequence(hash((seed, part, number)))
