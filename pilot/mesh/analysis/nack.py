"""Objects of which proxies refuse what follows: a mistake that only Envoy has found."""

from __future__ import annotations

from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.derive import derived
from pilot.mesh.analysis.check import Check
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.nacks import describe_nacks, nacked_objects, nacks_of


@derived
def refusal_problems(db: Mesh, ref: ObjectRef) -> tuple[Problem, ...]:
    """Returns what proxies say of what follows from an object."""
    found = nacks_of(db, ref)
    return (
        (Problem(code="refused", object=ref, message=describe_nacks(found), severity=Severity.WARNING),)
        if found
        else ()
    )


REFUSALS = Check("refusal", nacked_objects, refusal_problems)
