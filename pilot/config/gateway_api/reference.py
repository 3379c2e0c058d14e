"""References between objects of the Gateway API. Absent fields mean what the kind of reference says."""

from __future__ import annotations

from pilot.config.base import Int32, Lenient
from pilot.config.group_kind import GATEWAY_API


class ParentReference(Lenient, frozen=True):
    """Where a route attaches: to a Gateway, ListenerSet, Service or ServiceEntry, or one section or port of it."""

    group: str = GATEWAY_API
    kind: str = "Gateway"
    namespace: str | None = None
    name: str = ""
    section_name: str | None = None
    port: Int32 | None = None


class BackendObjectReference(Lenient, frozen=True):
    """Where requests go. Without `namespace` it is in that of the route."""

    group: str = ""
    kind: str = "Service"
    name: str = ""
    namespace: str | None = None
    port: Int32 | None = None


class BackendRef(BackendObjectReference, frozen=True):
    """A backend of a route; those with weight 0 get nothing."""

    weight: Int32 = 1


class SecretObjectReference(Lenient, frozen=True):
    """A certificate with its private key."""

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
    """What a policy is about, in its own namespace; `section_name`: one port of it."""

    group: str = ""
    kind: str = ""
    name: str = ""
    section_name: str | None = None
