"""Requests for debug pages over xDS. Each request is answered once and creates no subscription."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import grpc
from envoy.service.discovery.v3 import discovery_pb2


class DebugRequestError(Exception):
    """A request is denied, which ends its stream. `args` are the gRPC status and the message for the client."""

    @property
    def status(self) -> grpc.StatusCode:
        status: grpc.StatusCode = self.args[0]
        return status


class DebugAnswer(NamedTuple):
    """The resources in an answer: pairs of a name and a google.protobuf.Any. `identifier` names the control plane, or
    is ""."""

    resources: Sequence[tuple[str, Any]]
    identifier: str = ""


AnswerDebugRequest = Callable[[str, Sequence[str], str], AbstractAsyncContextManager[DebugAnswer]]
"""Returns a context manager for the answer to a request. The arguments are the request's type URL, its names, and the
client's verified identity or "".

The caller must not leave the context until the answer has been sent. Raises DebugRequestError to deny the request.
"""


@contextlib.asynccontextmanager
async def no_debug_answer(type_url: str, names: Sequence[str], identity: str) -> AsyncIterator[DebugAnswer]:
    """Yield an empty answer. This function is used for ports without debug pages."""
    yield DebugAnswer(())


def requested_names(request: Any) -> Sequence[str]:
    """Return the names in a request of either protocol variant."""
    is_delta = isinstance(request, discovery_pb2.DeltaDiscoveryRequest)
    return tuple(request.resource_names_subscribe if is_delta else request.resource_names)


def encode_answer(answer: DebugAnswer, request: Any, version: str, nonce: str) -> bytes:
    """Return the serialized response, in the protocol variant of the request."""
    if isinstance(request, discovery_pb2.DeltaDiscoveryRequest):
        delta = discovery_pb2.DeltaDiscoveryResponse(
            system_version_info=version, type_url=request.type_url, nonce=nonce
        )
        for name, resource in answer.resources:
            delta.resources.add(name=name, resource=resource)
        return _encode(delta, answer.identifier)
    response = discovery_pb2.DiscoveryResponse(version_info=version, type_url=request.type_url, nonce=nonce)
    response.resources.extend(resource for _, resource in answer.resources)
    return _encode(response, answer.identifier)


def _encode(response: Any, identifier: str) -> bytes:
    if identifier:
        response.control_plane.identifier = identifier
    encoded: bytes = response.SerializeToString()
    return encoded
