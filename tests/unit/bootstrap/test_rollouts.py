"""The last changes of objects: which ones are known, and for how many deleted objects."""

from __future__ import annotations

from pilot.bootstrap.rollouts import KEPT_DELETED, Rollouts
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.problem import ObjectRef
from pilot.debug.sources import CommittedObject
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock

CLUSTER = "Kubernetes"


def rollouts() -> Rollouts:
    mesh = Mesh()
    batch = Batch(mesh, VirtualClock(), parse_duration("100ms"), parse_duration("10s"), lambda _: None)
    return Rollouts(mesh, Ledger(ProblemStore()), batch, CLUSTER)


def change(event: int, *names: str, deleted: bool, recorded: Rollouts) -> None:
    row = None if deleted else object()
    edits = [(SERVICE.table_name, SERVICE.key(CLUSTER, "shop", name), row) for name in names]
    action = "delete" if deleted else "add"
    recorded.on_change(event, Commit([], edits, 1, 0.0, 0.0, {(SERVICE.table_name, action): len(edits)}, 0.0))


def last_change(recorded: Rollouts, name: str) -> tuple[int, bool]:
    """Return the number of the last change of a Service, and whether it has been forgotten."""
    committed = recorded.find(ObjectRef(SERVICE.id, "shop", name))
    assert isinstance(committed, CommittedObject)
    return committed.event, committed.is_forgotten


def test_deleted_objects_do_not_displace_changes_of_others() -> None:
    recorded = rollouts()
    change(1, "web", deleted=False, recorded=recorded)
    names = [f"s{n}" for n in range(KEPT_DELETED + 1)]
    change(2, *names, deleted=False, recorded=recorded)
    change(3, *names, deleted=True, recorded=recorded)
    assert [last_change(recorded, name) for name in ("web", names[-1], names[0])] == [(1, False), (3, False), (0, True)]
    change(4, names[0], deleted=False, recorded=recorded)
    assert last_change(recorded, names[0]) == (4, False)
