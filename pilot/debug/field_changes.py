"""The fields in which two versions of an object differ, as short texts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.config.kinds.kubernetes import SECRET
from pilot.config.kubernetes.endpoint_slice import EndpointSlice, SliceEndpoint
from pilot.config.object import Object
from pilot.lib.text import cut

MAX_FIELDS = 8
"""Maximum number of fields of an object."""
MAX_ENDPOINTS = 1_000
"""Maximum number of endpoints of an EndpointSlice that are compared by address, as many as Kubernetes allows."""
MAX_PATH, MAX_VALUE = 120, 80
"""Maximum numbers of characters of a path and of a value."""


class FieldChange(NamedTuple):
    """A field with its old and its new value as text. A value is "" if the field is not set, or if it is secret."""

    path: str
    old: str
    new: str


def field_changes(old: Any, new: Any) -> tuple[FieldChange, ...]:
    """Return the first fields in which two rows of a table differ, or () if one of them does not exist.

    A row is an object or another struct, such as the mesh config. The values of Secrets are omitted.
    """
    if old is None or new is None:
        return ()
    changes = _compare("", old, new)
    is_secret = False
    if isinstance(old, Object) and isinstance(new, Object):
        changes, is_secret = _compare_objects(old, new), new.kind == SECRET.id
    return tuple(
        FieldChange(cut(path.removeprefix("."), MAX_PATH), *(("", "") if is_secret else (_text(before), _text(after))))
        for path, before, after in itertools.islice(changes, MAX_FIELDS)
    )


def _compare_objects(old: Object[Any], new: Object[Any]) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old.spec, EndpointSlice) and isinstance(new.spec, EndpointSlice):
        yield from _compare_slices(old.spec, new.spec)
    else:
        yield from _compare("spec", old.spec, new.spec)
    yield from _compare("metadata.labels", old.labels, new.labels)
    yield from _compare("metadata.annotations", old.annotations, new.annotations)


def _compare_slices(old: EndpointSlice, new: EndpointSlice) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of an EndpointSlice that differ. Endpoints are compared by address, because their order has no
    meaning: those that are not ready come first. A new or removed endpoint has its readiness as value."""
    yield from _compare("addressType", old.address_type, new.address_type)
    yield from _compare("ports", old.ports, new.ports)
    if old.endpoints == new.endpoints:
        return
    if max(len(old.endpoints), len(new.endpoints)) > MAX_ENDPOINTS:
        yield from _compare("endpoints", old.endpoints, new.endpoints)
        return
    before, after = ({one.addresses: one for one in of.endpoints} for of in (old, new))
    every = dict.fromkeys((*before, *after))
    for addresses in sorted(every, key=lambda one: _readiness(after.get(one)) != "not ready"):
        path, first, last = f"endpoints[{', '.join(addresses[:2])}]", before.get(addresses), after.get(addresses)
        if first is None or last is None:
            yield path, _readiness(first), _readiness(last)
        else:
            yield from _compare(path, first, last)


def _readiness(endpoint: SliceEndpoint | None) -> str:
    return "absent" if endpoint is None else "not ready" if endpoint.conditions.ready is False else "ready"


def _compare(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths and the values of the innermost fields that differ."""
    if old == new:
        return
    if type(old) is not type(new) or not isinstance(old, msgspec.Struct | Mapping | list | tuple):
        yield path, old, new
        return
    for name, before, after in _pairs(old, new):
        yield from _compare(f"{path}{name[:MAX_PATH]}", before, after)


def _pairs(old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parts of two values of the same type, with the text that is appended to the path."""
    if isinstance(old, msgspec.Struct):
        for shown, name in zip(old.__struct_encode_fields__, old.__struct_fields__, strict=True):
            yield f".{shown}", getattr(old, name), getattr(new, name)
    elif isinstance(old, Mapping):
        for key in itertools.chain(old, (key for key in new if key not in old)):
            yield f".{key}", old.get(key), new.get(key)
    else:
        for index, (before, after) in enumerate(itertools.zip_longest(old, new)):
            yield f"[{index}]", before, after


def _text(value: Any) -> str:
    """Return the beginning of a value as text. The cost does not depend on the size of the value."""
    if value is None or value == () or value == {}:
        return ""
    text = ""
    for token in _tokens(value):
        text += token[:MAX_VALUE]
        if len(text) > MAX_VALUE:
            break
    return cut(text, MAX_VALUE)


def _tokens(value: Any) -> Iterator[str]:
    """Yield the parts of the text of a value. Fields that are not set are omitted."""
    if isinstance(value, msgspec.Struct | Mapping):
        yield "{"
        separator = ""
        for name, item, _ in _pairs(value, value):
            if item:
                yield f"{separator}{name[1 : MAX_VALUE + 1]}: "
                yield from _tokens(item)
                separator = ", "
        yield "}"
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield ", " if index else "["
            yield from _tokens(item)
        yield "]"
    elif isinstance(value, bytes):
        yield f"{len(value)} bytes"
    else:
        yield str(value).lower() if isinstance(value, bool) else str(value)
