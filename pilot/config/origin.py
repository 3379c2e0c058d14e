"""What an object follows from that no user wrote."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from pilot.config.problem import ObjectRef


class EndpointPicker(NamedTuple):
    """Who chooses the endpoint of each request: an ext_proc server. `fails_open`: without its answer any endpoint does."""

    host: str
    port: int
    fails_open: bool


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that one follows from, and by whose rules it is meant.

    Of a Gateway besides: the host names of the Services whose workloads it is for, which are in `namespace`; without any its selector
    says it. `account`: the service account that they run as, "" for any. Of a VirtualService: the endpoint pickers of its rules, by their names.
    """

    semantics: Literal["gateway", "ingress"]
    parents: tuple[ObjectRef, ...] = ()
    services: tuple[str, ...] = ()
    namespace: str = ""
    account: str = ""
    pickers: tuple[tuple[str, EndpointPicker], ...] = ()
