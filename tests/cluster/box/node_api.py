"""The kubelet's HTTPS port, which the API server uses: logs of containers, commands in them, and port-forwarding."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
import ssl
import urllib.parse

from aiohttp import web

from testing.apiserver.port_forward import CHANNELS, Connection, Tunnel, serve_channels
from tests.cluster.box import commands
from tests.cluster.box.addresses import NODE
from tests.cluster.box.container import NotRunning
from tests.cluster.box.kubelet import Kubelet
from tests.cluster.box.pod import PodRunner

PORT = 10250
UPGRADED = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {}\r\n\r\n"


class NodeApi:
    """Answers requests of the API server. `web_sockets` is the path of a socket for those that become a WebSocket."""

    def __init__(
        self, kubelet: Kubelet, certificate: pathlib.Path, key: pathlib.Path, web_sockets: pathlib.Path
    ) -> None:
        self._kubelet, self._context = kubelet, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._web_sockets = web_sockets

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get("/portForward/{namespace}/{name}", self._forward_channels)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.UnixSite(runner, str(self._web_sockets)).start()
        await asyncio.start_server(self._serve, NODE, PORT, ssl=self._context)

    async def _forward_channels(self, request: web.Request) -> web.StreamResponse:
        pod = self._pod(request.match_info["namespace"], request.match_info["name"])
        if pod is None:
            return web.Response(status=404, text="there is no such pod")
        socket = web.WebSocketResponse(protocols=[CHANNELS], max_msg_size=0)
        await socket.prepare(request)
        await serve_channels(socket, int(request.query["port"]), lambda port: _connect(pod, port))
        return socket

    async def _pass_on(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(self._web_sockets))
        inner_writer.write(head)
        try:
            await asyncio.wait(
                [asyncio.create_task(_copy(reader, inner_writer)), asyncio.create_task(_copy(inner_reader, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            inner_writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, NotRunning):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if "\r\nupgrade: websocket\r\n" in head.lower():
                await self._pass_on(head.encode(), reader, writer)
                return
            url = urllib.parse.urlsplit(head.split()[1])
            match url.path.strip("/").split("/"):
                case ["containerLogs", namespace, name, container] if (pod := self._pod(namespace, name)) is not None:
                    log = next(c.log for c in pod.containers if c.name == container)
                    _answer(writer, "200 OK", log.read_bytes() if log.exists() else b"")
                case ["portForward", namespace, name] if (pod := self._pod(namespace, name)) is not None:
                    writer.write(UPGRADED.format("portforward.k8s.io").encode())
                    await _forward(pod, reader, writer)
                case ["exec", namespace, name, container] if (pod := self._pod(namespace, name)) is not None:
                    writer.write(UPGRADED.format(commands.PROTOCOL).encode())
                    chosen = next(c for c in pod.containers if c.name == container)
                    await commands.serve_command(chosen, urllib.parse.parse_qs(url.query), reader, writer)
                case ["containerLogs" | "exec" | "portForward", *_]:
                    _answer(writer, "404 Not Found", b"there is no such pod")
                case _:
                    _answer(writer, "501 Not Implemented", f"the box does not implement {url.path}".encode())
            await writer.drain()
        writer.close()

    def _pod(self, namespace: str, name: str) -> PodRunner | None:
        return next((pod for pod in self._kubelet.find(namespace, name) if pod.pod["metadata"]["name"] == name), None)


def _answer(writer: asyncio.StreamWriter, status: str, body: bytes) -> None:
    writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


async def _connect(pod: PodRunner, port: int) -> Connection:
    host = pod.host
    if host is None:
        raise OSError("the pod has no network yet")
    connection = await asyncio.to_thread(host.run, lambda: socket.create_connection(("127.0.0.1", port), 5))
    connection.setblocking(False)
    return await asyncio.open_connection(sock=connection)


async def _forward(pod: PodRunner, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def send(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    tunnel = Tunnel(lambda port: _connect(pod, port), send)
    try:
        while data := await reader.read(1 << 16):
            await tunnel.receive(data)
    finally:
        tunnel.close()
