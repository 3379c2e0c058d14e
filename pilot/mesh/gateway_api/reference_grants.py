"""Checks references to other namespaces. A ReferenceGrant in the referenced namespace must permit them."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.gateway_api.reference import ReferenceGrant
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import REFERENCE_GRANT
from pilot.derive import derived
from pilot.mesh.tables.database import Mesh


class ReferenceKey(NamedTuple):
    """A reference from objects of one kind and namespace to another object.

    The referenced object has the kind `to`, the namespace `place` and the name `name`.
    """

    kind: GroupKind
    namespace: str
    to: GroupKind
    place: str
    name: str


def may_refer(db: Mesh, reference: ReferenceKey) -> bool:
    """Return True if a reference is permitted. References within a namespace are always permitted, without a memoised
    result."""
    return reference.namespace == reference.place or _granted(db, reference)


@derived
def _granted(db: Mesh, reference: ReferenceKey) -> bool:
    kind, namespace, to, place, _ = reference
    grants = (REFERENCE_GRANT.get(db, key) for key in REFERENCE_GRANT.keys(db, "pair", (kind, namespace, to, place)))
    return any(_grants(grant.spec, reference) for grant in grants if grant is not None)


def _grants(spec: ReferenceGrant, reference: ReferenceKey) -> bool:
    """Return True if a ReferenceGrant in the referenced namespace permits the reference."""
    from_matches = any(
        ((peer.group, peer.kind), peer.namespace) == (reference.kind, reference.namespace) for peer in spec.from_
    )
    return from_matches and any(
        (peer.group, peer.kind) == reference.to and peer.name in (None, reference.name) for peer in spec.to
    )
