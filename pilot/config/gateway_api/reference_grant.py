"""gateway.networking.k8s.io ReferenceGrant. https://gateway-api.sigs.k8s.io/api-types/referencegrant/"""

from __future__ import annotations

import msgspec

from pilot.config.base import Lenient


class ReferenceGrantFrom(Lenient, frozen=True):
    group: str = ""
    kind: str = ""
    namespace: str = ""


class ReferenceGrantTo(Lenient, frozen=True):
    """The target of a grant. Without a `name` it is every object of the kind in the grant's namespace."""

    group: str = ""
    kind: str = ""
    name: str | None = None


class ReferenceGrant(Lenient, frozen=True):
    """Allows objects in other namespaces to refer to objects in the grant's namespace."""

    from_: tuple[ReferenceGrantFrom, ...] = msgspec.field(default=(), name="from")
    to: tuple[ReferenceGrantTo, ...] = ()
