"""A client stream that subscribes to configuration objects from a server. It reconnects when it ends.

Received objects stay in force while the stream is disconnected.
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.rpc import code_pb2
from grpc import aio

from pilot.lib.backoff import Backoff, RetryDelays
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks
from pilot.lib.text import cut, one_line

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
NACK_LENGTH = 2000
"""The maximum length of an error message that is sent to the server, in characters."""
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),  # do not share the connection failures of other streams
)
_log = scope("adsc")


class McpClient(NamedTuple):
    """The identity of the client: its node ID and namespace, and the revision of the requested objects."""

    node_id: str
    namespace: str
    revision: str = ""


class CannotConnectError(Exception):
    """A connection cannot be attempted now. The message says what is missing."""


class McpEndpoint(NamedTuple):
    """A server of configuration objects.

    address: host:port.
    credentials: Returns the TLS credentials for each connection, or None for plaintext. May raise CannotConnectError.
    server_name: The name that the certificate must have, or "" if it is the host of the address.
    """

    address: str
    credentials: Callable[[], Awaitable[grpc.ChannelCredentials | None]]
    server_name: str = ""


Receive = Callable[[str, Sequence[tuple[str, bytes]]], Awaitable[Sequence[str]]]
"""A function that receives all resources of a type and returns an error message for each invalid resource.

A resource is given as the type URL and value of its Any. Invalid resources are ignored.
"""
OnState = Callable[[str], None]
"""A function that is called with "" when the stream works, or with the reason why there is no stream."""


class McpStream:
    """A subscription to some types of objects from a server. It is active between `start` and `stop`."""

    def __init__(
        self,
        server: McpEndpoint,
        client: McpClient,
        types: Sequence[str],
        receive: Receive,
        on_state: OnState,
        backoff: Backoff,
        rng: random.Random,
    ) -> None:
        self._server, self._client, self._types, self._receive, self._on_state = (
            server,
            client,
            types,
            receive,
            on_state,
        )
        self._attempts = RetryDelays(backoff, rng)
        self._versions: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the stream in a background task."""
        self._task = asyncio.create_task(self._run(), name=f"follow {self._server.address}")

    async def stop(self) -> None:
        """Stop the stream."""
        await cancel_tasks(self._task)

    async def _run(self) -> None:
        while True:
            try:
                reason = await self._subscribe()
            except (aio.AioRpcError, CannotConnectError) as error:
                reason = _reason(error)
            except Exception as error:  # a bug must not end the subscription
                _log.error("%s: cannot process a response", self._server.address, exc_info=True)
                reason = f"{type(error).__name__}: {error}"
            self._on_state(cut(one_line(reason), NACK_LENGTH))
            await asyncio.sleep(self._attempts.next_delay())

    async def _subscribe(self) -> str:
        """Process responses until the stream ends, and return the reason why it ended."""
        async with self._channel(await self._server.credentials()) as channel:
            method: Any = channel.stream_stream(
                METHOD, discovery_pb2.DiscoveryRequest.SerializeToString, discovery_pb2.DiscoveryResponse.FromString
            )
            call = method()
            self._versions.clear()
            for number, type_url in enumerate(self._types):
                await call.write(
                    discovery_pb2.DiscoveryRequest(type_url=type_url, node=None if number else self._node())
                )
            while (response := await call.read()) is not aio.EOF:  # type: ignore[attr-defined]
                await call.write(await self._process(response))
                self._attempts.reset()
                self._on_state("")
            return f"{(await call.code()).name} {await call.details()}".strip()

    async def _process(self, response: Any) -> Any:
        """Pass the resources of a response to `receive`, and return the ACK or NACK."""
        type_url = response.type_url
        errors = await self._receive(type_url, [(item.type_url, item.value) for item in response.resources])
        request = discovery_pb2.DiscoveryRequest(type_url=type_url, response_nonce=response.nonce)
        if errors:
            request.error_detail.code = code_pb2.INVALID_ARGUMENT
            request.error_detail.message = cut("; ".join(errors), NACK_LENGTH)
        else:
            self._versions[type_url] = response.version_info
        request.version_info = self._versions.get(type_url, "")
        return request

    def _channel(self, credentials: grpc.ChannelCredentials | None) -> aio.Channel:
        options = list(_OPTIONS)
        if credentials is None:
            return aio.insecure_channel(self._server.address, options)
        if self._server.server_name:
            options.append(("grpc.ssl_target_name_override", self._server.server_name))  # type: ignore[arg-type]
        return aio.secure_channel(self._server.address, credentials, options)

    def _node(self) -> Any:
        node = base_pb2.Node(id=self._client.node_id)
        node.metadata.update({"GENERATOR": "api", "NAMESPACE": self._client.namespace})
        if self._client.revision:
            node.metadata["ISTIO_REVISION"] = self._client.revision
        return node


def _reason(error: Exception) -> str:
    if isinstance(error, aio.AioRpcError):
        return f"{error.code().name} {error.details()}"
    return str(error)
