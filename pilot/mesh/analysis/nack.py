"""Reports objects whose resources proxies reject, because of mistakes that only Envoy detects."""

from __future__ import annotations

from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.derive import derived
from pilot.mesh.analysis.check import Check
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.nacks import describe_nacks, nacked_objects, nacks_of


@derived
def nack_problems(db: Mesh, ref: ObjectRef) -> tuple[Problem, ...]:
    """Return a problem if proxies reject resources that are built from an object."""
    if not (nacks := nacks_of(db, ref)):
        return ()
    return (Problem(code="refused", object=ref, message=describe_nacks(nacks), severity=Severity.WARNING),)


NACKS = Check("nack", nacked_objects, nack_problems)
