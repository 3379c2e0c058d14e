"""Requests that are answered once and watch nothing: debug pages over xDS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import grpc
from envoy.service.discovery.v3 import discovery_pb2


class QuestionError(Exception):
    """A question is refused, which ends its stream: `args[0]` is the gRPC status, `args[1]` the text for the peer."""

    @property
    def status(self) -> grpc.StatusCode:
        found: grpc.StatusCode = self.args[0]
        return found


class AnsweredResources(NamedTuple):
    """Names and resources, each a google.protobuf.Any. `identifier` says which control plane answers, "" where that is not told."""

    resources: Sequence[tuple[str, Any]]
    identifier: str = ""


Ask = Callable[[str, Sequence[str], str], Awaitable[AnsweredResources]]
"""Takes a type URL, the names of a request and the verified identity of who asks, "" for none, and returns the answer, which may take long.
QuestionError where the question is refused."""


async def no_answer(type_url: str, names: Sequence[str], identity: str) -> AnsweredResources:
    """Returns an empty answer, for where nobody answers questions."""
    return AnsweredResources(())


def names_asked(request: Any) -> Sequence[str]:
    """Returns the names of a request of either variant."""
    is_delta = isinstance(request, discovery_pb2.DeltaDiscoveryRequest)
    return tuple(request.resource_names_subscribe if is_delta else request.resource_names)


def encode_answer(answer: AnsweredResources, request: Any, version: str, nonce: str) -> bytes:
    """Returns the bytes of the response to a request, in the request's variant."""
    if isinstance(request, discovery_pb2.DeltaDiscoveryRequest):
        delta = discovery_pb2.DeltaDiscoveryResponse(
            system_version_info=version, type_url=request.type_url, nonce=nonce
        )
        for name, resource in answer.resources:
            delta.resources.add(name=name, resource=resource)
        return _encode(delta, answer.identifier)
    made = discovery_pb2.DiscoveryResponse(version_info=version, type_url=request.type_url, nonce=nonce)
    made.resources.extend(resource for _, resource in answer.resources)
    return _encode(made, answer.identifier)


def _encode(response: Any, identifier: str) -> bytes:
    if identifier:
        response.control_plane.identifier = identifier
    encoded: bytes = response.SerializeToString()
    return encoded
