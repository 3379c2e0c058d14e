"""The fields of configuration structs, by JSON name."""

from __future__ import annotations

import functools
import threading
from collections.abc import Hashable

from msgspec import inspect as mi

ONE_AT_A_TIME = threading.RLock()
"""Lock for msgspec's lazy inspection of types, which happens when a type is first used. Concurrent inspection has
crashed the process."""


@functools.cache
def type_info(kind: Hashable) -> mi.Type:
    with ONE_AT_A_TIME:
        return mi.type_info(kind)


@functools.cache
def fields(struct: type) -> dict[str, mi.Type]:
    """Return the type of each field of a struct, without `| None`, keyed by JSON name."""
    info = type_info(struct)
    assert isinstance(info, mi.StructType)
    return {field.encode_name: present(field.type) for field in info.fields}


def present(kind: mi.Type) -> mi.Type:
    """Return X if the type is `X | None`. Return any other type unchanged."""
    if isinstance(kind, mi.UnionType):
        kinds = [t for t in kind.types if not isinstance(t, mi.NoneType)]
        return kinds[0] if len(kinds) == 1 else kind
    return kind
