"""The agent's own subscriptions, which share the ADS stream with Envoy's subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from pilot.agent.xds.response_type import read_type_url

ResourceHandler = Callable[[list[bytes]], None]
"""A function that receives the serialized resources of a response. It raises ValueError to reject them."""
INVALID_ARGUMENT = 3


class AgentSubscriptions:
    """Subscriptions to all resources of some types. `handlers` are keyed by type URL."""

    def __init__(self, handlers: Mapping[str, ResourceHandler]) -> None:
        self._handlers = dict(handlers)

    def initial_requests(self, delta: bool) -> list[bytes]:
        """Return the first request for each type."""
        message = discovery_pb2.DeltaDiscoveryRequest if delta else discovery_pb2.DiscoveryRequest
        return [message(type_url=type_url).SerializeToString() for type_url in self._handlers]

    def handle(self, raw: bytes, delta: bool) -> bytes | None:
        """Process a response of a subscribed type and return the ACK or NACK.

        Return None if the response is for Envoy.
        """
        if not self._handlers or (handler := self._handlers.get(read_type_url(raw))) is None:
            return None
        try:
            response = (discovery_pb2.DeltaDiscoveryResponse if delta else discovery_pb2.DiscoveryResponse).FromString(
                raw
            )
        except DecodeError:
            return None
        rejection = ""
        try:
            handler([resource.resource.value if delta else resource.value for resource in response.resources])
        except ValueError as error:
            rejection = str(error)
        detail = status_pb2.Status(code=INVALID_ARGUMENT, message=rejection) if rejection else None
        if delta:
            request = discovery_pb2.DeltaDiscoveryRequest(
                type_url=response.type_url, response_nonce=response.nonce, error_detail=detail
            )
        else:
            version = "" if rejection else response.version_info
            request = discovery_pb2.DiscoveryRequest(
                type_url=response.type_url, response_nonce=response.nonce, version_info=version, error_detail=detail
            )
        body: bytes = request.SerializeToString()
        return body
