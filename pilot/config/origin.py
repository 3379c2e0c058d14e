"""The origin of objects that are derived from other objects."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from pilot.config.problem import ObjectRef


class EndpointPicker(NamedTuple):
    """An ext_proc server that picks the endpoint of each request.

    If `fails_open` is true, any endpoint is used while the server does not answer.
    """

    host: str
    port: int
    fails_open: bool


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that an object is derived from, and the API whose semantics apply to it.

    Gateways: `services` are the hostnames of the Services whose workloads, in `namespace`, implement the Gateway; if
    there are none, the selector applies. `account` is the service account of these workloads, or "" for any.
    VirtualServices: `pickers` are the endpoint pickers of named routes.
    """

    semantics: Literal["gateway", "ingress"]
    parents: tuple[ObjectRef, ...] = ()
    services: tuple[str, ...] = ()
    namespace: str = ""
    account: str = ""
    pickers: tuple[tuple[str, EndpointPicker], ...] = ()
