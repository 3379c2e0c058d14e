"""Header operations and host rewrites.

`set` replaces a header and `add` appends to it. The host cannot be changed as a header, so it becomes a host rewrite.
https://istio.io/latest/docs/reference/config/networking/virtual-service/#Headers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from envoy.config.core.v3 import base_pb2

from pilot.config.networking.virtual_service import HeaderOperations, Headers

_APPEND = base_pb2.HeaderValueOption.APPEND_IF_EXISTS_OR_ADD
_OVERWRITE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


class HeaderMutations(NamedTuple):
    """Header mutations in the form that routes, virtual hosts and weighted clusters use.

    `authority` is the new host, or "" if the host is unchanged.
    """

    request_add: list[base_pb2.HeaderValueOption]
    request_remove: list[str]
    response_add: list[base_pb2.HeaderValueOption]
    response_remove: list[str]
    authority: str = ""

    def fields(self) -> dict[str, list[base_pb2.HeaderValueOption] | list[str]]:
        """Return the mutations, keyed by Envoy's field names."""
        return {
            "request_headers_to_add": self.request_add,
            "request_headers_to_remove": self.request_remove,
            "response_headers_to_add": self.response_add,
            "response_headers_to_remove": self.response_remove,
        }


def build_header_mutations(headers: Headers | None) -> HeaderMutations:
    """Return the mutations, sorted by name. Values to set come before values to add."""
    if headers is None:
        return HeaderMutations([], [], [], [])
    request = headers.request or HeaderOperations()
    response = headers.response or HeaderOperations()
    return HeaderMutations(
        [*_values(request.set, _OVERWRITE), *_values(request.add, _APPEND)],
        _removable(request.remove),
        [*_values(response.set, _OVERWRITE), *_values(response.add, _APPEND)],
        _removable(response.remove),
        _authority(request.set) or _authority(request.add),
    )


def build_append_header(name: str, value: str) -> base_pb2.HeaderValueOption:
    """Return a mutation that appends a value to a header."""
    return base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=name, value=value), append_action=_APPEND)


def _values(
    headers: Mapping[str, str], action: base_pb2.HeaderValueOption.HeaderAppendAction
) -> Iterable[base_pb2.HeaderValueOption]:
    for name in sorted(headers):
        if not _is_internal(name):
            yield base_pb2.HeaderValueOption(
                header=base_pb2.HeaderValue(key=name, value=headers[name]), append_action=action
            )


def _removable(names: Iterable[str]) -> list[str]:
    return [name for name in names if not _is_internal(name)]


def _authority(headers: Mapping[str, str]) -> str:
    return next((value for name, value in headers.items() if name.lower() in ("host", ":authority")), "")


def _is_internal(name: str) -> bool:
    """Return whether Envoy rejects changes to a header."""
    return name.startswith(":") or name.lower() == "host"
