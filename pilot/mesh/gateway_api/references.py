"""The one place that decides whether an object may refer to one of another namespace: a ReferenceGrant there must say so."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.gateway_api.reference import ReferenceGrant
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import REFERENCE_GRANT
from pilot.derive import derived
from pilot.mesh.tables.database import Mesh


class ReferenceKey(NamedTuple):
    """A reference: from an object of that kind and namespace, to the object of kind `to`, namespace `place` and that name."""

    kind: GroupKind
    namespace: str
    to: GroupKind
    place: str
    name: str


def may_refer(db: Mesh, reference: ReferenceKey) -> bool:
    """Returns whether a reference may be made. No node of its own where it stays in its namespace."""
    return reference.namespace == reference.place or _granted(db, reference)


@derived
def _granted(db: Mesh, reference: ReferenceKey) -> bool:
    kind, namespace, to, place, _ = reference
    grants = (REFERENCE_GRANT.get(db, key) for key in REFERENCE_GRANT.keys(db, "pair", (kind, namespace, to, place)))
    return any(_grants(grant.spec, reference) for grant in grants if grant is not None)


def _grants(spec: ReferenceGrant, reference: ReferenceKey) -> bool:
    """Returns whether a grant of the place that a reference leads to allows it."""
    by = any(((one.group, one.kind), one.namespace) == (reference.kind, reference.namespace) for one in spec.from_)
    return by and any((one.group, one.kind) == reference.to and one.name in (None, reference.name) for one in spec.to)
