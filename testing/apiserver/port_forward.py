"""Port-forwarding: SPDY in a WebSocket or on a connection, connected to the address that stands for a pod's port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from aiohttp import WSMsgType, web

from testing.apiserver.request_info import RequestInfo
from testing.apiserver.spdy import Data, Ping, Reset, SpdyConnection, StreamOpened

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
CHANNELS = "v4.channel.k8s.io"
"""Protocol in which the first byte of a message is its channel: 0 for the data, and 1 for errors."""
Address = tuple[str, int]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PortForwards:
    """Answers port-forward requests. `ports` maps a pod's namespace, name and port to the address to connect to."""

    def __init__(self) -> None:
        self.ports: dict[tuple[str, str, int], Address] = {}

    async def answer(self, info: RequestInfo, request: web.Request) -> web.StreamResponse:
        """Serve one client until it disconnects. A request that is no WebSocket upgrade is rejected."""
        socket = web.WebSocketResponse(protocols=[PROTOCOL, CHANNELS], max_msg_size=0)
        if not socket.can_prepare(request):
            return web.Response(status=400, text="port-forwarding is served over WebSockets\n")
        await socket.prepare(request)
        if socket.ws_protocol == CHANNELS:
            await serve_channels(socket, int(info.query["ports"]), lambda port: self._connect(info, port))
            return socket
        tunnel = Tunnel(lambda port: self._connect(info, port), socket.send_bytes)
        try:
            async for message in socket:
                if message.type == WSMsgType.BINARY:
                    await tunnel.receive(message.data)
        finally:
            tunnel.close()
        return socket

    async def _connect(self, info: RequestInfo, port: int) -> Connection:
        address = self.ports.get((info.namespace, info.name, port))
        if address is None:
            raise OSError(f"no address is registered for port {port} of {info.namespace}/{info.name}")
        return await asyncio.open_connection(*address)


async def serve_channels(
    socket: web.WebSocketResponse, port: int, connect: Callable[[int], Awaitable[Connection]]
) -> None:
    """Forward a port to a client that speaks CHANNELS. `connect` raises OSError if it cannot connect to the port."""
    for channel in (b"\0", b"\1"):
        await socket.send_bytes(channel + port.to_bytes(2, "little"))
    try:
        reader, writer = await connect(port)
    except OSError as error:
        await socket.send_bytes(b"\1" + str(error).encode())
        return
    download = asyncio.create_task(_download(reader, socket))
    try:
        async for message in socket:
            if message.type == WSMsgType.BINARY:
                writer.write(message.data[1:])
    finally:
        download.cancel()
        writer.close()


async def _download(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(1 << 16):
            await socket.send_bytes(b"\0" + chunk)
        await socket.close()


class Tunnel:
    """One client's tunnel. Each connection is a pair of streams: the first carries errors, the second data.

    `connect` returns a connection to a port of the pod, or raises OSError. `send` sends bytes to the client.
    """

    def __init__(
        self, connect: Callable[[int], Awaitable[Connection]], send: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._connect_to, self._send_bytes = connect, send
        self._frames = SpdyConnection()
        self._errors: dict[str, int] = {}
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._readers: set[asyncio.Task[None]] = set()

    async def receive(self, data: bytes) -> None:
        for event in self._frames.receive(data):
            match event:
                case StreamOpened(stream, headers):
                    await self._send(self._frames.reply(stream))
                    if headers.get("streamtype") == "error":
                        self._errors[headers.get("requestid", "")] = stream
                    else:
                        await self._connect(
                            stream, int(headers["port"]), self._errors.pop(headers.get("requestid", ""), 0)
                        )
                case Data(stream, payload, ended):
                    await self._forward(stream, payload, ended)
                case Reset(stream):
                    if writer := self._writers.pop(stream, None):
                        writer.close()
                case Ping(frame):
                    await self._send(frame)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        for reader in self._readers:
            reader.cancel()

    async def _connect(self, stream: int, port: int, errors: int) -> None:
        try:
            reader, self._writers[stream] = await self._connect_to(port)
        except OSError as error:
            await self._send(self._frames.data(errors, str(error).encode(), ended=True))
            await self._send(self._frames.data(stream, b"", ended=True))
            return
        task = asyncio.create_task(self._read(stream, reader, errors))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _read(self, stream: int, reader: asyncio.StreamReader, errors: int) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(1 << 16):
                await self._send(self._frames.data(stream, chunk))
            await self._send(self._frames.data(stream, b"", ended=True))
            await self._send(self._frames.data(errors, b"", ended=True))

    async def _forward(self, stream: int, payload: bytes, ended: bool) -> None:
        writer = self._writers.get(stream)
        if writer is None:
            return
        with contextlib.suppress(OSError):
            writer.write(payload)
            await writer.drain()
            if ended:
                writer.write_eof()

    async def _send(self, frame: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            await self._send_bytes(frame)
