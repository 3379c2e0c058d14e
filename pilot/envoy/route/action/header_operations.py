"""Builds operations on headers, and the host that a request goes on with.

https://istio.io/latest/docs/reference/config/networking/virtual-service/#Headers: `set` replaces, `add` appends. The host cannot be
changed as a header: it becomes a host rewrite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from envoy.config.core.v3 import base_pb2

from pilot.config.networking.virtual_service import HeaderOperations, Headers

_APPEND = base_pb2.HeaderValueOption.APPEND_IF_EXISTS_OR_ADD
_OVERWRITE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


class HeaderMutations(NamedTuple):
    """Holds what Envoy's routes, virtual hosts and weighted clusters all have fields for; `authority` is "" where it stays."""

    request_add: list[base_pb2.HeaderValueOption]
    request_remove: list[str]
    response_add: list[base_pb2.HeaderValueOption]
    response_remove: list[str]
    authority: str = ""

    def fields(self) -> dict[str, list[base_pb2.HeaderValueOption] | list[str]]:
        """Returns the operations by the names of Envoy's fields."""
        return {
            "request_headers_to_add": self.request_add,
            "request_headers_to_remove": self.request_remove,
            "response_headers_to_add": self.response_add,
            "response_headers_to_remove": self.response_remove,
        }


def build_header_mutations(headers: Headers | None) -> HeaderMutations:
    """Returns the operations: values to set come before those to add, each by name."""
    if headers is None:
        return HeaderMutations([], [], [], [])
    request = headers.request or HeaderOperations()
    response = headers.response or HeaderOperations()
    return HeaderMutations(
        [*_values(request.set, _OVERWRITE), *_values(request.add, _APPEND)],
        _names(request.remove),
        [*_values(response.set, _OVERWRITE), *_values(response.add, _APPEND)],
        _names(response.remove),
        _authority(request.set) or _authority(request.add),
    )


def build_append_header(name: str, value: str) -> base_pb2.HeaderValueOption:
    """Returns a value to add to those that the header has."""
    return base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=name, value=value), append_action=_APPEND)


def _values(
    headers: Mapping[str, str], action: base_pb2.HeaderValueOption.HeaderAppendAction
) -> Iterable[base_pb2.HeaderValueOption]:
    for name in sorted(headers):
        if not _is_internal(name):
            yield base_pb2.HeaderValueOption(
                header=base_pb2.HeaderValue(key=name, value=headers[name]), append_action=action
            )


def _names(names: Iterable[str]) -> list[str]:
    return [name for name in names if not _is_internal(name)]


def _authority(headers: Mapping[str, str]) -> str:
    return next((value for name, value in headers.items() if name.lower() in ("host", ":authority")), "")


def _is_internal(name: str) -> bool:
    """Returns whether a name is one that Envoy refuses to change as a header."""
    return name.startswith(":") or name.lower() == "host"
