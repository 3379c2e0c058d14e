"""Builds the action of an HTTPDirectResponse: an answer without any upstream."""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2

from pilot.config.networking.virtual_service import HTTPDirectResponse


def build_direct_response(response: HTTPDirectResponse) -> route_components_pb2.DirectResponseAction:
    """Returns the status, and the body where there is one."""
    out = route_components_pb2.DirectResponseAction(status=response.status)
    if response.body is not None:
        if response.body.string is not None:
            out.body.CopyFrom(base_pb2.DataSource(inline_string=response.body.string))
        elif response.body.bytes_ is not None:
            out.body.CopyFrom(base_pb2.DataSource(inline_bytes=response.body.bytes_))
    return out
