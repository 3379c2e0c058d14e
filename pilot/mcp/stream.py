"""The stream that asks a server for configuration objects: opened again whenever it ends, and what came before stays meanwhile.

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
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks
from pilot.lib.text import cut, one_line

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
NACK_LENGTH = 2000
"""Characters of what a server is told of the resources that are wrong."""
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),  # another stream's failures are not this one's
)
_log = scope("adsc")


class McpClient(NamedTuple):
    """Who asks: the id of the node, its namespace, and the revision that the objects are for."""

    node_id: str
    namespace: str
    revision: str = ""


class CannotConnectError(Exception):
    """A connection cannot be tried now; the text says what is missing."""


class McpSourceServer(NamedTuple):
    """`address` is host:port; `credentials` gives those of TLS each time that it is connected to, None for plain text (CannotConnectError where they
    are not to be had); `server_name` is the name that the certificate must have, "" for the host of the address."""

    address: str
    credentials: Callable[[], Awaitable[grpc.ChannelCredentials | None]]
    server_name: str = ""


Receive = Callable[[str, Sequence[tuple[str, bytes]]], Awaitable[Sequence[str]]]
"""Takes all resources of a type, each as the type URL and value of its Any, and returns what is wrong with some; those are left out."""
Tell = Callable[[str], None]
"""Is told why there is no stream, and "" when there is one."""


class McpStream:
    """Follows some types of one server, between `start` and `stop`."""

    def __init__(
        self,
        target: McpSourceServer,
        client: McpClient,
        types: Sequence[str],
        receive: Receive,
        tell: Tell,
        backoff: Backoff,
        choose: random.Random,
    ) -> None:
        self._target, self._client, self._types, self._receive, self._tell = target, client, types, receive, tell
        self._attempts = RetryDelays(backoff, choose)
        self._versions: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to follow."""
        self._task = asyncio.create_task(self._run(), name=f"follow {self._target.address}")

    async def stop(self) -> None:
        """Follows nothing any more."""
        await cancel_tasks(self._task)

    async def _run(self) -> None:
        while True:
            try:
                reason = await self._follow()
            except (aio.AioRpcError, CannotConnectError) as error:
                reason = _reason(error)
            except Exception as error:  # a bug of ours: it must not end the following
                _log.error("%s: an answer cannot be taken", self._target.address, exc_info=True)
                reason = f"{type(error).__name__}: {error}"
            self._tell(cut(one_line(reason), NACK_LENGTH))
            await asyncio.sleep(self._attempts.next_delay())

    async def _follow(self) -> str:
        """Follows until the stream ends; returns why it has."""
        async with self._channel(await self._target.credentials()) as channel:
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
                await call.write(await self._take(response))
                self._attempts.reset()
                self._tell("")
            return f"{(await call.code()).name} {await call.details()}".strip()

    async def _take(self, response: Any) -> Any:
        """Hands an answer on; returns what it is acknowledged or refused with."""
        of = response.type_url
        wrong = await self._receive(of, [(item.type_url, item.value) for item in response.resources])
        request = discovery_pb2.DiscoveryRequest(type_url=of, response_nonce=response.nonce)
        if wrong:
            request.error_detail.code = code_pb2.INVALID_ARGUMENT
            request.error_detail.message = cut("; ".join(wrong), NACK_LENGTH)
        else:
            self._versions[of] = response.version_info
        request.version_info = self._versions.get(of, "")
        return request

    def _channel(self, credentials: grpc.ChannelCredentials | None) -> aio.Channel:
        options = list(_OPTIONS)
        if credentials is None:
            return aio.insecure_channel(self._target.address, options)
        if self._target.server_name:
            options.append(("grpc.ssl_target_name_override", self._target.server_name))  # type: ignore[arg-type]
        return aio.secure_channel(self._target.address, credentials, options)

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
