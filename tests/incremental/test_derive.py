"""Random edits of a small database: incremental equals scratch, every change is reported, and no node leaks."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pilot.derive import Collection, Database, Gather, Node, Table, derived, hub

HOSTS = [f"h{i}" for i in range(7)]
NAMESPACES = ["a", "b", "public"]
SEQUENCES, STEPS, PARTS = 1_500, 14, 3


class MeshDatabase(Database):
    """Services in namespaces, and rules that name two hosts each."""

    def __init__(self) -> None:
        super().__init__()
        self.services: Table[str, dict[str, Any]] = Table(self, "service", namespace=lambda _, row: [row["namespace"]])
        self.rules: Table[str, dict[str, Any]] = Table(self, "rule", host=lambda _, row: row["hosts"])


@derived
def every_service(db: MeshDatabase) -> tuple[str, ...]:
    return db.services.all_keys()


@derived
def rules_for_host(db: MeshDatabase, host: str) -> dict[str, dict[str, Any]] | None:
    """Return two rules for a service with ip 2. The second one may be overridden by the table or another service."""
    row = db.services.get(host)
    if row is None or row["ip"] != 2:
        return None
    return {f"of {host}": {"hosts": (host, "h0"), "weight": 1}, "r0": {"hosts": ("h1", host), "weight": 2}}


rules_by_host = Gather("rules_by_host", every_service, rules_for_host)


@derived
def service_rules(db: MeshDatabase) -> dict[str, dict[str, Any]]:
    return {key: row for host_rules in rules_by_host(db).values() for key, row in host_rules.items()}


@derived
def namespace_rules(db: MeshDatabase) -> dict[str, dict[str, Any]]:
    """Return a rule for each namespace, or fail if there is only one."""
    if len(namespaces := {row["namespace"] for key in db.services.all_keys() if (row := db.services.get(key))}) == 1:
        raise ValueError("one namespace")
    return {f"of {name}": {"hosts": ("h0", "h1"), "weight": index % 3} for index, name in enumerate(sorted(namespaces))}


rules: Collection[str, dict[str, Any]] = Collection("rule", "rule")
rules.add_source(service_rules)
all_rules: Collection[str, dict[str, Any]] = Collection("any rule", "rule")
all_rules.add_source(namespace_rules)
all_rules.add_source(service_rules)


@derived
def rules_of(db: MeshDatabase, host: str) -> tuple[tuple[str, int], ...]:
    return tuple((key, row["weight"]) for key in rules.keys(db, "host", host) if (row := rules.get(db, key)))


@derived
def all_rules_of(db: MeshDatabase, viewer: str) -> tuple[Any, ...]:
    """Read one row, one bucket or all keys, or return the error of a failed source."""
    try:
        if viewer == "other":
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
def parity(db: MeshDatabase, host: str) -> int:
    return sum(weight for _, weight in rules_of(db, host)) % 2


@derived
def virtual_host(db: MeshDatabase, host: str, viewer: str) -> tuple[Any, ...] | None:
    row = db.services.get(host)
    if row is None or row["ip"] == 3:
        return None
    return (host, row["ip"], parity(db, host) if row["namespace"] == viewer else rules_of(db, host))


@hub
def visible(db: MeshDatabase, viewer: str) -> tuple[str, ...]:
    public = db.services.keys("namespace", "public") if viewer != "public" else ()
    return db.services.keys("namespace", viewer) + public


@derived
def strict(db: MeshDatabase, viewer: str) -> tuple[int, ...]:
    """Return the weights of the rules of visible hosts, or fail if one is 3. Errors are memoised and invalidated like values."""
    weights = [weight for host in visible(db, viewer) for _, weight in rules_of(db, host)]
    if 3 in weights:
        raise ValueError(f"{viewer} is too heavy")
    return tuple(weights)


@derived
def tolerant(db: MeshDatabase, viewer: str) -> str:
    try:
        return str(strict(db, viewer))
    except ValueError as error:
        return str(error)


table = Gather("table", visible, virtual_host)


@hub
def heaviest(db: MeshDatabase, viewer: str) -> int:
    """A hub of hubs whose value seldom changes."""
    return max((parity(db, host) + len(names(db, viewer)) // 3 for host in visible(db, viewer)), default=-1)


@derived
def verdict(db: MeshDatabase, viewer: str) -> str:
    return f"{viewer}: {heaviest(db, viewer)} {heaviest(db, 'public')} {parity(db, 'h0')}"


@derived
def names(db: MeshDatabase, viewer: str) -> tuple[str, ...]:
    return tuple(table(db, viewer))


ROOTS = [
    (fn, viewer)
    for fn in (table, names, tolerant, verdict, heaviest, all_rules_of)
    for viewer in (*NAMESPACES, "other")
]


def random_edits(rng: random.Random) -> list[tuple[str, str, dict[str, Any] | None]]:
    edits: dict[tuple[str, str], dict[str, Any] | None] = {}
    for _ in range(rng.randint(1, 3)):
        is_deleted = rng.random() < 0.3
        if rng.random() < 0.5:
            edits["services", rng.choice(HOSTS)] = (
                None if is_deleted else {"namespace": rng.choice(NAMESPACES), "ip": rng.randint(0, 3)}
            )
        else:
            hosts = tuple(sorted(rng.sample(HOSTS, 2)))
            edits["rules", f"r{rng.randint(0, 5)}"] = (
                None if is_deleted else {"hosts": hosts, "weight": rng.randint(0, 3)}
            )
    return [(name, key, row) for (name, key), row in edits.items()]


def fresh_copy(world: MeshDatabase) -> MeshDatabase:
    fresh = MeshDatabase()
    fresh.commit(
        [(getattr(fresh, name), key, row) for name in ("services", "rules") for key, row in getattr(world, name).rows()]
    )
    return fresh


def graph(world: MeshDatabase) -> dict[Any, set[Any]]:
    """Return every node by name and arguments, with its inputs."""
    return {repr(node): {repr(source) for source in node.inputs()} for node in world.live_nodes()}


def run_sequence(seed: int) -> None:
    rng, world = random.Random(seed), MeshDatabase()
    watched: dict[Any, Node] = {}
    for step in range(STEPS):
        before = {root: node.value for root, node in watched.items()}
        reported = world.commit([(getattr(world, name), key, row) for name, key, row in random_edits(rng)])
        fresh = fresh_copy(world)
        for root in ROOTS:
            fn, viewer = root
            if rng.random() < 0.1:  # part of a sweep
                world.collect_some(rng.randint(1, 8))
            if rng.random() < 0.2:
                if root in watched:
                    world.unwatch(watched.pop(root))
                else:
                    watched[root] = world.watch(fn, viewer)
            if root not in watched:
                if rng.random() < 0.1:
                    assert fn(world, viewer) == fn(fresh, viewer), f"seed {seed} step {step}: {root}, unwatched read"
                continue
            node, expected = watched[root], fresh.watch(fn, viewer).value
            if root in before and before[root] != expected:
                assert node in reported, f"seed {seed} step {step}: {root} changed and was not reported"
            world.refresh(node)
            assert node.value == expected, f"seed {seed} step {step}: {root}"
            if fn is table:
                assert list(node.value) == list(expected), f"seed {seed} step {step}: order of {root}"
        if rng.random() < 0.3:
            for database in (world, fresh):
                database.collect()
            assert graph(world) == graph(fresh), f"seed {seed} step {step}: live nodes differ from watched ones"
    for node in watched.values():
        world.unwatch(node)
    world.collect()
    assert len(world) == 0, f"seed {seed}: unwatched nodes leak"


@pytest.mark.parametrize("part", range(PARTS))
def test_incremental_equals_scratch(seed: int, part: int) -> None:
    for number in range(SEQUENCES // PARTS):
        run_sequence(hash((seed, part, number)))
