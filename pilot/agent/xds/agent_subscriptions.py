"""What the agent itself asks the control plane for, on the stream of Envoy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from pilot.agent.xds.response_type import read_type_url

Take = Callable[[list[bytes]], None]
"""Takes the resources of a response, serialized; ValueError where they cannot be used."""
INVALID_ARGUMENT = 3


class AgentSubscriptions:
    """`takers` by type URL. Without any of them no response is looked into."""

    def __init__(self, takers: Mapping[str, Take]) -> None:
        self._takers = dict(takers)

    def requests(self, delta: bool) -> list[bytes]:
        """Returns the first request of each type, for all resources."""
        message = discovery_pb2.DeltaDiscoveryRequest if delta else discovery_pb2.DiscoveryRequest
        return [message(type_url=type_url).SerializeToString() for type_url in self._takers]

    def take(self, raw: bytes, delta: bool) -> bytes | None:
        """Takes a response of one of the types, and returns the ACK or NACK to send; None for a response that is for Envoy."""
        if not self._takers or (taker := self._takers.get(read_type_url(raw))) is None:
            return None
        try:
            response = (discovery_pb2.DeltaDiscoveryResponse if delta else discovery_pb2.DiscoveryResponse).FromString(
                raw
            )
        except DecodeError:
            return None
        error = ""
        try:
            taker([resource.resource.value if delta else resource.value for resource in response.resources])
        except ValueError as wrong:
            error = str(wrong)
        detail = status_pb2.Status(code=INVALID_ARGUMENT, message=error) if error else None
        if delta:
            answer = discovery_pb2.DeltaDiscoveryRequest(
                type_url=response.type_url, response_nonce=response.nonce, error_detail=detail
            )
        else:
            version = "" if error else response.version_info
            answer = discovery_pb2.DiscoveryRequest(
                type_url=response.type_url, response_nonce=response.nonce, version_info=version, error_detail=detail
            )
        body: bytes = answer.SerializeToString()
        return body
