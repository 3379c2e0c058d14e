"""Mutation tests of dependency tracking: makes one read of a table at a time untracked, and checks that edits detect
it.

A recorded run of edits yields the steps in which a site was the only link between a change and a derivation, because
everything that changed had been read there. If that read were untracked, the derivation would keep its old value. The
step is then repeated with the reads of the site untracked, to see whether the result differs.
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
from testing.edits.mesh_edits import Rows, Snapshot, Step, empty_mesh, snapshot, start
from testing.mesh.world import World

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRACKED_FOLDERS = (str(ROOT / "pilot" / "mesh"), str(ROOT / "pilot" / "envoy"))
READERS: tuple[tuple[type[Any], str], ...] = tuple(
    (kind, name) for kind in (Table, Collection) for name in ("get", "keys", "buckets", "all_keys")
)
EXEMPT_SITES = {
    "pilot/mesh/registry/service_targets.py _kubernetes_targets Pod.get": "labels and ports of a Pod equal its workload's, which is read too",
    "pilot/mesh/registry/workloads.py _registry_labels Pod.get": "labels and address of a Pod equal its workload's, which is read too",
}
"""Sites whose reads are redundant, by name, with the reason."""
MAX_TRIALS = 40  # edits to try per site before it is reported


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
        """A name that does not change when lines move: "file function read"."""
        return f"{self.file} {self.function} {self.read}"

    @property
    def table(self) -> str:
        return self.read.rpartition(".")[0]


Sites = frozenset[Site]
"""Sites at which one derivation reads the same thing. A change is only missed if all of them are untracked."""
_sites: dict[tuple[int, int, str], Site | None] = {}


def _site(frame: FrameType, read: str) -> Site | None:
    """Return the site of a frame's current instruction, or None outside of the tracked packages."""
    code, instruction = frame.f_code, frame.f_lasti
    key = (id(code), instruction, read)
    if key not in _sites:
        _sites[key] = None
        if code.co_filename.startswith(TRACKED_FOLDERS):
            line = next((line for first, end, line in code.co_lines() if first <= instruction < end and line), 0)
            _sites[key] = Site(
                str(pathlib.Path(code.co_filename).relative_to(ROOT)), line, code.co_qualname, instruction, read
            )
    return _sites[key]


@contextlib.contextmanager
def intercept_reads(around: Callable[[Site, Any, Callable[[], Any]], Any]) -> Iterator[None]:
    """Route every read of a table by a tracked derivation through `around(site, database, read)`."""
    originals = {(kind, name): getattr(kind, name) for kind, name in READERS}

    def wrap(kind: type[Any], name: str) -> Callable[..., Any]:
        original = originals[kind, name]

        def read(self: Any, *args: Any) -> Any:
            db = self._db if kind is Table else args[0]
            site = None if db._reads is None else _site(sys._getframe(1), f"{self.name}.{name}")
            return original(self, *args) if site is None else around(site, db, lambda: original(self, *args))

        return read

    for kind, name in READERS:
        setattr(kind, name, wrap(kind, name))
    try:
        yield
    finally:
        for (kind, name), original in originals.items():
            setattr(kind, name, original)


@contextlib.contextmanager
def untracked(sites: Sites) -> Iterator[None]:
    """Leave the reads of these sites untracked, as if they bypassed the database."""

    def around(site: Site, db: Any, read: Callable[[], Any]) -> Any:
        if site not in sites:
            return read()
        tracked, db._reads = db._reads, {}
        try:
            return read()
        finally:
            db._reads = tracked

    with intercept_reads(around):
        yield


class _Run(NamedTuple):
    """A run of a node that had a value before: its read sites until then, and its value and revisions."""

    read_at: Mapping[Node, set[Site]]
    deps: tuple[Node, ...]
    value: Any
    changed_at: int
    verified_at: int


class Reads:
    """Records the read sites of every node, and the sites that were the only link to a change."""

    def __init__(self) -> None:
        self.sites: set[Site] = set()
        self._running: dict[int, dict[Node, set[Site]]] = {}  # by the identity of the running derivation's record
        self._read_at: dict[Node, dict[Node, set[Site]]] = {}
        self._ran: dict[Node, _Run] = {}
        self._decisive: set[Sites] = set()

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Record every read and every run of a derivation while the block runs."""
        original = Database._link

        def link(db: Database, node: Node, reads: dict[Node, None], linked: int) -> None:
            self._evaluate_run(node)
            if node.verified_at >= 0:
                self._ran[node] = _Run(
                    self._read_at.get(node, {}), node.deps, node.value, node.changed_at, node.verified_at
                )
            self._read_at[node] = self._running.pop(id(reads), {})
            original(db, node, reads, linked)

        Database._link = link  # type: ignore[method-assign,assignment,unused-ignore]
        try:
            with intercept_reads(self._around):
                yield
        finally:
            Database._link = original  # type: ignore[method-assign,assignment,unused-ignore]

    def _around(self, site: Site, db: Any, read: Callable[[], Any]) -> Any:
        self.sites.add(site)
        tracked, db._reads = db._reads, {}
        try:
            return read()
        finally:
            reads, db._reads = db._reads, tracked
            tracked.update(reads)
            sites = self._running.setdefault(id(tracked), {})
            for node in reads:
                sites.setdefault(node, set()).add(site)

    def _evaluate_run(self, node: Node) -> None:
        """Add the sites that were the only link between the node and the change that its last run depended on."""
        run = self._ran.pop(node, None)
        if run is None or node.changed_at == run.changed_at or node.value is run.value:
            return
        sites_of_changes = [
            run.read_at.get(dep, set()) for dep in run.deps if dep.changed_at > run.verified_at or dep.verified_at < 0
        ]
        if sites_of_changes and sites_of_changes[0] and all(sites == sites_of_changes[0] for sites in sites_of_changes):
            self._decisive.add(frozenset(sites_of_changes[0]))

    def take_decisive(self) -> set[Sites]:
        """Return, and forget, the sites that were the only link between some derivation and a change."""
        for node in list(self._ran):
            self._evaluate_run(node)
        decisive, self._decisive = self._decisive, set()
        return decisive


Observe = Callable[[World], Any]


def observe_all(world: World) -> tuple[Snapshot, dict[tuple[Any, ...], Any]]:
    """Return the resources of proxies and the reports to users: the problems and the status of every object."""
    problems = {
        (check.name, key): world.value(check.problems, key) for check in CHECKS for key in world.value(check.keys)
    }
    return snapshot(world), problems | {
        ("status of", ref): world.value(object_status, ref) for ref in world.value(objects_with_status)
    }


class Trial(NamedTuple):
    """An edit of a mesh with given rows, and the expected observation after it. Similar edits have the same `group`."""

    flags: Mapping[str, str]
    before: Rows
    group: Any
    edit: Rows
    expected: Any


Change = tuple[Any, Rows]
"""The group of similar edits, and an edit."""


class Survey:
    """Every site that was executed, and the trials for each."""

    def __init__(self, observe: Observe = observe_all) -> None:
        self.sites: set[Site] = set()
        self.trials: dict[Sites, list[Trial]] = {}
        self._observe = observe

    def add(self, steps: Iterable[Step], flags: Mapping[str, str]) -> None:
        """Replay steps of edits."""
        self.record(((tuple((slot, step.state[slot]) for slot in step.slots), step.rows) for step in steps), flags)

    def record(self, changes: Iterable[Change], flags: Mapping[str, str]) -> None:
        """Replay edits, the first of which creates the mesh."""
        reads, world = Reads(), empty_mesh(flags)
        rows: dict[tuple[str, Any], Any] = {}
        previous: Any = None
        with reads.record():
            for group, edit in changes:
                world.set(edit)
                observation, decisive = self._observe(world), reads.take_decisive()
                if rows and observation != previous:
                    trial = Trial(flags, dict(rows), group, edit, observation)
                    for sites in decisive:
                        self.trials.setdefault(sites, []).append(trial)
                rows, previous = {key: row for key, row in {**rows, **edit}.items() if row is not None}, observation
        assert not world.failures, world.failures  # a failure would count as a detection
        self.sites |= reads.sites

    def count_trials(self, site: Site) -> int:
        """Return the number of trials that involve a site."""
        return sum(len(site_trials) for tried_sites, site_trials in self.trials.items() if site in tried_sites)

    def detects(self, site: Site) -> bool:
        """Return whether some trial differs if the reads of the site, and of sites that read the same, are untracked."""
        groups = sorted((sites for sites in self.trials if site in sites), key=len)
        return any(self._differs(sites, trial) for sites in groups for trial in spread(self.trials[sites], MAX_TRIALS))

    def _differs(self, sites: Sites, trial: Trial) -> bool:
        with untracked(sites):
            world = start(trial.before, trial.flags)
            self._observe(world)
            world.set(trial.edit)
            return bool(self._observe(world) != trial.expected or world.failures)


def spread(items: Sequence[Trial], count: int) -> Sequence[Trial]:
    """Return at most `count` items, taken in turn from each group of similar ones."""
    groups: dict[Any, list[Trial]] = {}
    for item in items:
        groups.setdefault(item.group, []).append(item)
    rounds = itertools.zip_longest(*groups.values())
    return [item for one_round in rounds for item in one_round if item is not None][:count]
