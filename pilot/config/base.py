"""Base classes for configuration structs. They define JSON names, the handling of unknown fields, and protobuf's number
types.

Structs have no reference cycles, so the garbage collector does not track them (`gc=False`).
"""

from __future__ import annotations

import functools
from typing import Annotated, ClassVar

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
UInt32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
UInt64 = Annotated[int, msgspec.Meta(ge=0)]  # no upper bound, because msgspec supports only signed 64-bit bounds


@functools.cache
def json_name(name: str) -> str:
    """Return the JSON name of a protobuf field, such as `consecutive5xxErrors` for `consecutive_5xx_errors`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


class Strict(msgspec.Struct, frozen=True, gc=False, rename=json_name, forbid_unknown_fields=True):
    """A message of Istio's API. Unknown fields are rejected.

    Fields that hold a message, a wrapper or a member of a oneof are None if absent. Other absent fields have their
    protobuf default.
    """


class OneOf(Strict, frozen=True):
    """A message with oneofs. At most one field of each group in `groups` may be set."""

    groups: ClassVar[tuple[tuple[str, ...], ...]] = ()

    def __post_init__(self) -> None:
        for group in self.groups:
            if sum(getattr(self, field) is not None for field in group) > 1:
                raise ValueError(f"only one of {', '.join(json_name(field) for field in group)} may be set")


class Lenient(msgspec.Struct, frozen=True, gc=False, rename=json_name):
    """A Kubernetes message, with only the fields that a mesh needs. Other fields are ignored."""
