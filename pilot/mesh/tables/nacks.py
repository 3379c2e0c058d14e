"""Which objects proxies have refused what follows from."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.problem import ObjectRef
from pilot.derive import derived
from pilot.mesh.model.condition import StatusCondition
from pilot.mesh.model.nack import Refusal
from pilot.mesh.tables.database import Mesh

_NAMED = 3


@derived
def refused_objects(db: Mesh) -> tuple[ObjectRef, ...]:
    """Returns every object that something follows from which some proxy refused."""
    return db.refusals.buckets("object")


@derived
def refusals_of(db: Mesh, ref: ObjectRef) -> tuple[Refusal, ...]:
    """Returns what proxies refused that follows from an object, by proxy."""
    return tuple(found for key in db.refusals.keys("object", ref) if (found := db.refusals.get(key)) is not None)


def tell(refusals: Iterable[Refusal]) -> str:
    """Returns refusals in words: what each says once, with the first of those who say it."""
    by_text: dict[tuple[str, str], list[str]] = {}
    for one in refusals:
        by_text.setdefault((one.type_name, one.message), []).append(one.proxy)
    return "; ".join(
        f"{_names(proxies)} refused {type_name}: {message}" for (type_name, message), proxies in by_text.items()
    )


def _names(proxies: list[str]) -> str:
    rest = len(proxies) - _NAMED
    return ", ".join(proxies[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def refused_condition(refusals: tuple[Refusal, ...]) -> tuple[StatusCondition, ...]:
    """Returns the condition of an object of the Gateway API that proxies refuse; () where none does."""
    return (StatusCondition("Programmed", False, "Refused", tell(refusals)),) if refusals else ()
