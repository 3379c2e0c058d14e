"""What an object follows from that no user wrote."""
from __future__ import annotations

from typing import Literal

import msgspec

from pilot.model.problem import ObjectRef


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that one follows from, and by whose rules it is meant.

    Of a Gateway besides: the host names of the Services whose workloads it is for, which are in `namespace`; without any its selector
    says it. `account`: the service account that they run as, "" for any.
    """

    semantics: Literal["gateway", "ingress"]
    parents: tuple[ObjectRef, ...] = ()
    services: tuple[str, ...] = ()
    namespace: str = ""
    account: str = ""
