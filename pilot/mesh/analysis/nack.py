"""Reports configuration that proxies reject, because of mistakes that only Envoy detects."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.problem import ObjectRef, Problem
from pilot.derive import derived
from pilot.mesh.analysis.check import Check
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.nacks import RejectionKey, describe_nacks, nacks_in, rejections

_SUSPECTS = ("EnvoyFilter", "VirtualService", "HTTPRoute", "Gateway", "DestinationRule")
"""Kinds that cause most rejections, the most likely first."""


@derived
def nack_problems(db: Mesh, rejection: RejectionKey) -> tuple[Problem, ...]:
    """Return a problem with the most suspicious of the objects that the rejected resources are built from.

    The message names the other objects. If no object is known, the problem has none.
    """
    first, *others = sort_suspects(rejection.objects) or (ObjectRef(),)
    text = describe_nacks(nacks_in(db, rejection))
    also = f" (also built from {', '.join(map(_name, others))})" if others else ""
    return (Problem(code="refused", object=first, message=text + also),)


def sort_suspects(objects: Iterable[ObjectRef]) -> list[ObjectRef]:
    """Return the objects that a rejected resource is built from, the most likely cause first."""
    return sorted(objects, key=_suspicion)


def _suspicion(ref: ObjectRef) -> int:
    return _SUSPECTS.index(ref.kind.name) if ref.kind.name in _SUSPECTS else len(_SUSPECTS)


def _name(ref: ObjectRef) -> str:
    return f"{ref.kind.name} {ref.namespace}/{ref.name}"


NACKS = Check("nack", rejections, nack_problems)
