"""Objects of which proxies refuse what follows: a mistake that only Envoy has found."""

from __future__ import annotations

from pilot.derive import derived
from pilot.model.checks.check import Check
from pilot.model.inputs import Mesh
from pilot.model.problem import ObjectRef, Problem, Severity
from pilot.model.views.refusals import refusals_of, refused_objects, tell


@derived
def refusal_problems(db: Mesh, ref: ObjectRef) -> tuple[Problem, ...]:
    """Returns what proxies say of what follows from an object."""
    found = refusals_of(db, ref)
    return (Problem(code="refused", object=ref, message=tell(found), severity=Severity.WARNING),) if found else ()


REFUSALS = Check("refusal", refused_objects, refusal_problems)
