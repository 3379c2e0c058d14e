"""Rejections by proxies (NACKs), indexed by the objects that caused them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pilot.config.problem import ObjectRef
from pilot.derive import derived
from pilot.mesh.model.condition import StatusCondition
from pilot.mesh.model.nack import Nack
from pilot.mesh.tables.database import Mesh

_LISTED = 3


class RejectionKey(NamedTuple):
    """A resource type, and the objects that the rejected resources are derived from, as far as they are known."""

    type_name: str
    objects: tuple[ObjectRef, ...]


@derived
def rejections(db: Mesh) -> tuple[RejectionKey, ...]:
    """Return the types and the objects of all rejections. Proxies that reject the same share an entry."""
    return tuple(RejectionKey(*bucket) for bucket in db.nacks.buckets("rejection"))


@derived
def nacks_in(db: Mesh, rejection: RejectionKey) -> tuple[Nack, ...]:
    """Return the rejections of a type that have the same objects, one for each proxy."""
    keys = db.nacks.keys("rejection", tuple(rejection))
    return tuple(nack for key in keys if (nack := db.nacks.get(key)) is not None)


@derived
def nacks_of(db: Mesh, ref: ObjectRef) -> tuple[Nack, ...]:
    """Return the rejections of resources that are derived from an object. There is one for each proxy and resource
    type."""
    return tuple(nack for key in db.nacks.keys("object", ref) if (nack := db.nacks.get(key)) is not None)


def describe_nacks(nacks: Iterable[Nack]) -> str:
    """Return a summary of rejections. Equal rejections are listed once, with the names of the first proxies."""
    by_text: dict[tuple[str, str], list[str]] = {}
    for nack in nacks:
        by_text.setdefault((nack.type_name, nack.message), []).append(nack.proxy)
    return "; ".join(
        f"{_names(proxies)} rejected {type_name}: {message}" for (type_name, message), proxies in by_text.items()
    )


def _names(proxies: list[str]) -> str:
    rest = len(proxies) - _LISTED
    return ", ".join(proxies[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def nack_condition(nacks: tuple[Nack, ...]) -> tuple[StatusCondition, ...]:
    """Return the condition of a Gateway API object whose resources proxies reject, or () if there are no rejections."""
    return (StatusCondition("Programmed", False, "Rejected", describe_nacks(nacks)),) if nacks else ()
