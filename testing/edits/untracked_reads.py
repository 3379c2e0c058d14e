"""Tracked reads of tables, found where they are made, and taken away one at a time: an untracked read is a bug that only edits can find.

One pass over a course of edits says at which steps a site was the only one that could tell a derivation of a change: all that had
changed of what it had read was read there. Without a trace of that read the value would have stayed as it was. Whether a proxy
would have noticed is then tried with the reads of that site untracked, from the state before the step.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

from pilot.derive import Collection, Database, Node, Table
from pilot.mesh.analysis.listed import CHECKS
from pilot.mesh.status.object_status import object_status, objects_with_status
from testing.edits.mesh_edits import Rows, Snapshot, Step, bare, snapshot, start
from testing.mesh.world import World

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACES = (str(ROOT / "pilot" / "mesh"), str(ROOT / "pilot" / "envoy"))
READERS: tuple[tuple[type[Any], str], ...] = tuple(
    (kind, name) for kind in (Table, Collection) for name in ("get", "keys", "buckets", "all_keys")
)
EXPLAINED = {
    "pilot/mesh/registry/service_targets.py _kubernetes_targets Pod.get": "labels and ports of a Pod are its workload's, which is read too",
    "pilot/mesh/registry/workloads.py _registry_labels Pod.get": "labels and address of a Pod are its workload's, which is read too",
}
"""Sites of which no edit is missed without a trace, by name, and why."""
TRIES = 40  # edits by which a site is tried, before it counts as unnoticed


class Site(NamedTuple):
    """An instruction that reads a table or a collection. Two calls on one line are two sites."""

    file: str
    line: int
    function: str
    instruction: int
    read: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.read}"

    @property
    def name(self) -> str:
        """What stays the same when lines move: "file function read"."""
        return f"{self.file} {self.function} {self.read}"

    @property
    def table(self) -> str:
        return self.read.rpartition(".")[0]


Sites = frozenset[Site]
"""Sites at which one derivation read the same thing: each tells it of a change, so that all of them must be untracked to miss it."""
_sites: dict[tuple[int, int, str], Site | None] = {}


def _site(frame: FrameType, read: str) -> Site | None:
    """The site of a frame's current instruction; None outside of model and translate."""
    code, instruction = frame.f_code, frame.f_lasti
    key = (id(code), instruction, read)
    if key not in _sites:
        _sites[key] = None
        if code.co_filename.startswith(PLACES):
            line = next((line for first, end, line in code.co_lines() if first <= instruction < end and line), 0)
            _sites[key] = Site(
                str(pathlib.Path(code.co_filename).relative_to(ROOT)), line, code.co_qualname, instruction, read
            )
    return _sites[key]


@contextlib.contextmanager
def intercepted(around: Callable[[Site, Any, Callable[[], Any]], Any]) -> Iterator[None]:
    """Every read of a table by a derivation of model or translate goes through `around(site, database, read)`."""
    originals = {(kind, name): getattr(kind, name) for kind, name in READERS}

    def wrapped(kind: type[Any], name: str) -> Callable[..., Any]:
        original = originals[kind, name]

        def read(self: Any, *args: Any) -> Any:
            db = self._db if kind is Table else args[0]
            site = None if db._reads is None else _site(sys._getframe(1), f"{self.name}.{name}")
            return original(self, *args) if site is None else around(site, db, lambda: original(self, *args))

        return read

    for kind, name in READERS:
        setattr(kind, name, wrapped(kind, name))
    try:
        yield
    finally:
        for (kind, name), original in originals.items():
            setattr(kind, name, original)


@contextlib.contextmanager
def untracked(wrong: Sites) -> Iterator[None]:
    """The reads of these sites leave no trace, as if they went past the database."""

    def around(site: Site, db: Any, read: Callable[[], Any]) -> Any:
        if site not in wrong:
            return read()
        tracked, db._reads = db._reads, {}
        try:
            return read()
        finally:
            db._reads = tracked

    with intercepted(around):
        yield


class _Run(NamedTuple):
    """A run of a node that had a value: what it had read where until then, and its value and revisions."""

    read_at: Mapping[Node, set[Site]]
    deps: tuple[Node, ...]
    value: Any
    changed_at: int
    verified_at: int


class Reads:
    """Where every node read what it was computed from, and which sites alone had to tell it of a change."""

    def __init__(self) -> None:
        self.sites: set[Site] = set()
        self._running: dict[int, dict[Node, set[Site]]] = {}  # by the identity of the running derivation's record
        self._read_at: dict[Node, dict[Node, set[Site]]] = {}
        self._ran: dict[Node, _Run] = {}
        self._needed: set[Sites] = set()

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Every read and every run of a derivation is taken down."""
        original = Database._link

        def link(db: Database, node: Node, reads: dict[Node, None]) -> None:
            self._settle(node)
            if node.verified_at >= 0:
                self._ran[node] = _Run(
                    self._read_at.get(node, {}), node.deps, node.value, node.changed_at, node.verified_at
                )
            self._read_at[node] = self._running.pop(id(reads), {})
            original(db, node, reads)

        Database._link = link  # type: ignore[method-assign,assignment,unused-ignore]
        try:
            with intercepted(self._around):
                yield
        finally:
            Database._link = original  # type: ignore[method-assign,assignment,unused-ignore]

    def _around(self, site: Site, db: Any, read: Callable[[], Any]) -> Any:
        self.sites.add(site)
        tracked, db._reads = db._reads, {}
        try:
            return read()
        finally:
            found, db._reads = db._reads, tracked
            tracked.update(found)
            places = self._running.setdefault(id(tracked), {})
            for node in found:
                places.setdefault(node, set()).add(site)

    def _settle(self, node: Node) -> None:
        """Add the sites, if any, that alone had to tell the node of the change that its last run came of."""
        run = self._ran.pop(node, None)
        if run is None or node.changed_at == run.changed_at or node.value is run.value:
            return
        told = [
            run.read_at.get(dep, set()) for dep in run.deps if dep.changed_at > run.verified_at or dep.verified_at < 0
        ]
        if told and told[0] and all(sites == told[0] for sites in told):
            self._needed.add(frozenset(told[0]))

    def needed(self) -> set[Sites]:
        """The sites that alone had to tell some derivation of a change since they were asked for."""
        for node in list(self._ran):
            self._settle(node)
        needed, self._needed = self._needed, set()
        return needed


Look = Callable[[World], Any]


def look_at_all(world: World) -> tuple[Snapshot, dict[tuple[Any, ...], Any]]:
    """Return what proxies get, and what users are told: the problems of every object, and every status."""
    problems = {
        (check.name, key): world.value(check.problems, key) for check in CHECKS for key in world.value(check.keys)
    }
    return snapshot(world), problems | {
        ("status of", ref): world.value(object_status, ref) for ref in world.value(objects_with_status)
    }


class Occasion(NamedTuple):
    """An edit of a mesh that has other rows, and what is seen after it. `alike` is the same of edits that are alike."""

    flags: Mapping[str, str]
    before: Rows
    alike: Any
    edit: Rows
    wanted: Any


Change = tuple[Any, Rows]
"""What is the same of edits that are alike, and an edit."""


class Survey:
    """Every site that was passed, and the edits that changed what is seen and of which sites alone had to tell."""

    def __init__(self, look: Look = look_at_all) -> None:
        self.sites: set[Site] = set()
        self.occasions: dict[Sites, list[Occasion]] = {}
        self._look = look

    def add(self, steps: Iterable[Step], flags: Mapping[str, str]) -> None:
        """Live through steps of edits."""
        self.follow(((tuple((slot, step.state[slot]) for slot in step.slots), step.rows) for step in steps), flags)

    def follow(self, changes: Iterable[Change], flags: Mapping[str, str]) -> None:
        """Live through edits, of which the first makes the mesh."""
        reads, world = Reads(), bare(flags)
        rows: dict[tuple[str, Any], Any] = {}
        had: Any = None
        with reads.recorded():
            for alike, edit in changes:
                world.set(edit)
                got, needed = self._look(world), reads.needed()
                if rows and got != had:
                    occasion = Occasion(flags, dict(rows), alike, edit, got)
                    for sites in needed:
                        self.occasions.setdefault(sites, []).append(occasion)
                rows, had = {key: row for key, row in {**rows, **edit}.items() if row is not None}, got
        assert not world.failures, world.failures  # each would count as noticed
        self.sites |= reads.sites

    def count_occasions(self, site: Site) -> int:
        return sum(len(occasions) for group, occasions in self.occasions.items() if site in group)

    def noticed(self, site: Site) -> bool:
        """Whether something wrong is seen when the reads of the site leave no trace, and of those that tell the same as well."""
        groups = sorted((group for group in self.occasions if site in group), key=len)
        return any(
            self._goes_wrong(group, chance) for group in groups for chance in spread(self.occasions[group], TRIES)
        )

    def _goes_wrong(self, sites: Sites, chance: Occasion) -> bool:
        with untracked(sites):
            world = start(chance.before, chance.flags)
            self._look(world)
            world.set(chance.edit)
            return bool(self._look(world) != chance.wanted or world.failures)


def spread(items: Sequence[Occasion], count: int) -> Sequence[Occasion]:
    """At most so many, of all that are alike some."""
    alike: dict[Any, list[Occasion]] = {}
    for item in items:
        alike.setdefault(item.alike, []).append(item)
    turns = itertools.zip_longest(*alike.values())
    return [item for turn in turns for item in turn if item is not None][:count]
