"""References between objects of the Gateway API, and ReferenceGrant, which allows them across namespaces.

https://gateway-api.sigs.k8s.io/api-types/referencegrant/
"""

from __future__ import annotations

import msgspec

from pilot.config.base import Int32, Lenient
from pilot.config.group_kind import GATEWAY_API


class ParentReference(Lenient, frozen=True):
    """A reference to the parent of a route. The parent is a Gateway, ListenerSet, Service or ServiceEntry, or a section
    or port of such an object."""

    group: str = GATEWAY_API
    kind: str = "Gateway"
    namespace: str | None = None
    name: str = ""
    section_name: str | None = None
    port: Int32 | None = None


class BackendObjectReference(Lenient, frozen=True):
    """A reference to the destination of requests. The namespace defaults to that of the route."""

    group: str = ""
    kind: str = "Service"
    name: str = ""
    namespace: str | None = None
    port: Int32 | None = None


class BackendRef(BackendObjectReference, frozen=True):
    """A weighted backend of a route. A backend with weight 0 receives no traffic."""

    weight: Int32 = 1


class SecretObjectReference(Lenient, frozen=True):
    """A reference to a Secret that contains a certificate and its private key."""

    group: str = ""
    kind: str = "Secret"
    name: str = ""
    namespace: str | None = None


class ObjectReference(Lenient, frozen=True):
    group: str = ""
    kind: str = ""
    name: str = ""
    namespace: str | None = None


class LocalObjectReference(Lenient, frozen=True):
    group: str = ""
    kind: str = ""
    name: str = ""


class LocalPolicyTargetReference(Lenient, frozen=True):
    """A reference from a policy to a target in the same namespace. `section_name` restricts it to one port."""

    group: str = ""
    kind: str = ""
    name: str = ""
    section_name: str | None = None


class ReferenceGrantFrom(Lenient, frozen=True):
    group: str | None = None
    kind: str = ""
    namespace: str = ""


class ReferenceGrantTo(Lenient, frozen=True):
    """The target of a grant. Without a `name`, the target is every object of the kind in the grant's namespace."""

    group: str | None = None
    kind: str = ""
    name: str | None = None


class ReferenceGrant(Lenient, frozen=True):
    """Allows objects in other namespaces to refer to objects in the grant's namespace."""

    from_: tuple[ReferenceGrantFrom, ...] = msgspec.field(default=(), name="from")
    to: tuple[ReferenceGrantTo, ...] = ()
