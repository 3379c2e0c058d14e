"""Local ports that lead to ports of Pods, through the API server.

Each connection is one WebSocket of the protocol v4.channel.k8s.io, which every version of Kubernetes serves.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

import aiohttp

from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import KubeError

PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
"""Channels of the first port. The first byte of a message is the channel."""
_CHUNK = 32 << 10


class PortForward:
    """A port on 127.0.0.1 whose connections lead to a port of a Pod. Use it as an asynchronous context manager.

    `error` is why the last connection failed, or "".
    """

    def __init__(self, client: ApiClient, namespace: str, pod: str, port: int) -> None:
        self._client, self._port = client, port
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port, self.error = 0, ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._forward(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._client.websocket(self._path, {"ports": str(self._port)}, PROTOCOL) as socket:
                upload = asyncio.create_task(_upload(reader, socket))
                try:
                    await self._download(socket, writer)
                finally:
                    upload.cancel()
                    await asyncio.gather(upload, return_exceptions=True)
        except KubeError as error:
            self.error = str(error)
        except (OSError, aiohttp.ClientError) as error:
            self.error = str(error) or type(error).__name__
        finally:
            writer.close()

    async def _download(self, socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
        """Write the data of the Pod until either side ends. Each channel begins with the number of the port."""
        numbered = set[int]()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in numbered:
                numbered.add(channel)
                data = data[2:]
            if channel == _ERROR and data:
                self.error = data.decode(errors="replace").strip()
                return
            if channel == _DATA:
                writer.write(data)
                await writer.drain()


async def _upload(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    with contextlib.suppress(OSError, aiohttp.ClientError):
        while data := await reader.read(_CHUNK):
            await socket.send_bytes(bytes([_DATA]) + data)
        await socket.close()
