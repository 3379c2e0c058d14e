"""What every configuration struct shares: JSON names, strictness, and the number types of protobuf."""
from __future__ import annotations

from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
UInt32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
UInt64 = Annotated[int, msgspec.Meta(ge=0)]


def json_name(name: str) -> str:
    """The JSON name of a protobuf field: `http2_max_requests` → `http2MaxRequests`, `consecutive_5xx_errors` → `consecutive5xxErrors`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


class Strict(msgspec.Struct, frozen=True, rename=json_name, forbid_unknown_fields=True):
    """A message of Istio's API. Absent: None for messages, wrappers and members of a oneof, else the protobuf default."""


class Lenient(msgspec.Struct, frozen=True, rename=json_name):
    """A part of a Kubernetes object: only the fields that a mesh needs, any other is ignored."""
