"""The base of every configuration struct: JSON names, strictness, and the number types of protobuf.

The garbage collector does not look at them (`gc=False`): what is decoded holds no cycle.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
UInt32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
UInt64 = Annotated[int, msgspec.Meta(ge=0)]  # no upper bound: msgspec knows only signed ones


def json_name(name: str) -> str:
    """Returns the JSON name of a protobuf field: `http2_max_requests` → `http2MaxRequests`, `consecutive_5xx_errors` → `consecutive5xxErrors`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


class Strict(msgspec.Struct, frozen=True, gc=False, rename=json_name, forbid_unknown_fields=True):
    """A message of Istio's API. Absent: None for messages, wrappers and members of a oneof, else the protobuf default."""


class OneOf(Strict, frozen=True):
    """A message with oneofs: of each group of fields in `groups` at most one may be there."""

    groups: ClassVar[tuple[tuple[str, ...], ...]] = ()

    def __post_init__(self) -> None:
        for group in self.groups:
            if sum(getattr(self, field) is not None for field in group) > 1:
                raise ValueError(f"only one of {', '.join(json_name(field) for field in group)} may be set")


class Lenient(msgspec.Struct, frozen=True, gc=False, rename=json_name):
    """A part of a Kubernetes object: only the fields that a mesh needs, any other is ignored."""
