"""Reports configuration that proxies reject, because of mistakes that only Envoy detects."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.problem import ObjectRef, Problem
from pilot.derive import derived
from pilot.mesh.analysis.check import Check
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.nacks import RejectionKey, describe_nacks, nacks_in, rejections

REJECTED = "refused"
"""The code of problems with objects from which proxies reject resources."""
_NAMED = 3
"""Maximum number of other objects that a problem names."""
_SUSPECTS = ("EnvoyFilter", "VirtualService", "HTTPRoute", "Gateway", "DestinationRule")
"""Kinds that cause most rejections, the most likely first."""


@derived
def nack_problems(db: Mesh, rejection: RejectionKey) -> tuple[Problem, ...]:
    """Return a problem with the most suspicious of the objects that the rejected resources are built from.

    The message names the other objects. If no object is known, the problem has none.
    """
    first, *others = sort_suspects(rejection.objects) or (ObjectRef(),)
    text = describe_nacks(nacks_in(db, rejection))
    rest = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    also = f" (also built from {', '.join(map(_name, others[:_NAMED]))}{rest})" if others else ""
    return (Problem(code=REJECTED, object=first, message=text + also),)


def likely_causes(objects: Iterable[ObjectRef]) -> list[ObjectRef]:
    """Return the objects that may have caused a rejection, the most likely first.

    If there are EnvoyFilters, these are only the EnvoyFilters: the fields of other kinds are validated, and patches are
    not.
    """
    suspects = sort_suspects(objects)
    return [ref for ref in suspects if ref.kind.name == _SUSPECTS[0]] or suspects


def sort_suspects(objects: Iterable[ObjectRef]) -> list[ObjectRef]:
    """Return the objects that a rejected resource is built from, the most likely cause first."""
    return sorted(objects, key=_suspicion)


def _suspicion(ref: ObjectRef) -> int:
    return _SUSPECTS.index(ref.kind.name) if ref.kind.name in _SUSPECTS else len(_SUSPECTS)


def _name(ref: ObjectRef) -> str:
    return f"{ref.kind.name} {ref.namespace}/{ref.name}"


NACKS = Check("nack", rejections, nack_problems)
