"""Connections to ports of pods, as clients of API servers have them: SPDY in a WebSocket, joined to whatever stands for the port."""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import WSMsgType, web

from testing.apiserver.request_info import Asked
from testing.apiserver.spdy import Data, Frames, Opened, Ping, Reset

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
Place = tuple[str, int]


class PortForwards:
    """`ports`: the address that stands for a port of a pod, by namespace, pod and port."""

    def __init__(self) -> None:
        self.ports: dict[tuple[str, str, int], Place] = {}

    async def answer(self, asked: Asked, request: web.Request) -> web.StreamResponse:
        """Serve one client until it goes. Without a WebSocket it is refused."""
        socket = web.WebSocketResponse(protocols=[PROTOCOL], max_msg_size=0)
        if not socket.can_prepare(request):
            return web.Response(status=400, text="port-forwarding is served over WebSockets\n")
        await socket.prepare(request)
        tunnel = _Tunnel(self, asked, socket)
        try:
            async for message in socket:
                if message.type == WSMsgType.BINARY:
                    await tunnel.take(message.data)
        finally:
            tunnel.close()
        return socket


class _Tunnel:
    """One client. A connection is a pair of streams: the first is for errors, the second for bytes."""

    def __init__(self, forwards: PortForwards, asked: Asked, socket: web.WebSocketResponse) -> None:
        self._forwards, self._asked, self._socket = forwards, asked, socket
        self._frames = Frames()
        self._errors: dict[str, int] = {}
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._readers: set[asyncio.Task[None]] = set()

    async def take(self, data: bytes) -> None:
        for happened in self._frames.take(data):
            match happened:
                case Opened(stream, headers):
                    await self._send(self._frames.reply(stream))
                    if headers.get("streamtype") == "error":
                        self._errors[headers.get("requestid", "")] = stream
                    else:
                        await self._connect(
                            stream, int(headers["port"]), self._errors.pop(headers.get("requestid", ""), 0)
                        )
                case Data(stream, sent, ended):
                    await self._pass_on(stream, sent, ended)
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
        place = self._forwards.ports.get((self._asked.namespace, self._asked.name, port))
        try:
            if place is None:
                raise OSError(f"nothing stands for port {port} of {self._asked.namespace}/{self._asked.name}")
            reader, self._writers[stream] = await asyncio.open_connection(*place)
        except OSError as error:
            await self._send(self._frames.data(errors, str(error).encode(), ended=True))
            await self._send(self._frames.data(stream, b"", ended=True))
            return
        task = asyncio.create_task(self._read(stream, reader, errors))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _read(self, stream: int, reader: asyncio.StreamReader, errors: int) -> None:
        with contextlib.suppress(OSError):
            while read := await reader.read(1 << 16):
                await self._send(self._frames.data(stream, read))
            await self._send(self._frames.data(stream, b"", ended=True))
            await self._send(self._frames.data(errors, b"", ended=True))

    async def _pass_on(self, stream: int, sent: bytes, ended: bool) -> None:
        writer = self._writers.get(stream)
        if writer is None:
            return
        with contextlib.suppress(OSError):
            writer.write(sent)
            await writer.drain()
            if ended:
                writer.write_eof()

    async def _send(self, frame: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            await self._socket.send_bytes(frame)
