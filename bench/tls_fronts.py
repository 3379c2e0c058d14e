#!/usr/bin/env python3
"""Compare implementations of TLS for a gRPC server, by the server's CPU time per connection.

    python bench/tls_fronts.py [--connections 1000] [--sizes 10000,14000,24000,30000] [--rounds 3] [--variants plain,grpc,…]

A bare server answers each request of a stream with a prepared message of the given size, and does nothing else. Its
certificate has an RSA key of 2048 bits, or an EC key with `--key ec`. The variants are measured in turn. The output has
CPU-milliseconds per connection over all threads of the server, from the first connection to the last message, and its
peak resident set.

    plain       no TLS
    grpc        TLS of grpcio, which cannot verify an optional client certificate
    streams     asyncio streams with TLS, each connection forwarded to a Unix socket
    asyncio     protocols on the event loop of asyncio
    uvloop      protocols on uvloop
    memory      sockets without transports, read and written by event loop callbacks, with TLS in memory
    product     pilot/xds/tls: as `memory`, with TLS in the socket (ssl.SSLSocket)
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import os
import pathlib
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pilot.xds.net.listen_address import Address
from pilot.xds.tls.context import CertificatePair, TlsRules, make_context
from pilot.xds.tls.front import TlsFront

METHOD = "/bench.Bench/Stream"
NAME = "istiod.istio-system.svc"
SERVER = [
    ("grpc.so_reuseport", 0),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
]
CLIENT = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.ssl_target_name_override", NAME),
]
READ = 1 << 16


# -- the server --------------------------------------------------------------------------------------------------------


def make_server(sizes: list[int]) -> grpc.aio.Server:
    messages = [os.urandom(size) for size in sizes]

    async def stream(_: Any, context: Any) -> None:
        for message in messages:
            if await context.read() is grpc.aio.EOF:  # type: ignore[attr-defined]
                return
            await context.write(message)
        await context.read()

    handler = grpc.stream_stream_rpc_method_handler(stream)
    server = grpc.aio.server(options=SERVER)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Bench", {"Stream": handler}),))
    return server


def context_of(folder: pathlib.Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    context.load_verify_locations(folder / "cert.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["h2"])
    context.num_tickets = 0
    return context


def named_socket(number: int) -> socket.socket:
    """Return a Unix socket with a unique name, by which gRPC distinguishes its peers."""
    connection = socket.socket(socket.AF_UNIX)
    connection.bind(f"\0tls-fronts-{os.getpid()}-{number}")
    connection.setblocking(False)
    return connection


async def streams_front(context: ssl.SSLContext, inner: str) -> int:
    """Forward with asyncio streams."""
    count = 0

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        connection = named_socket(count)
        await asyncio.get_running_loop().sock_connect(connection, inner)
        inner_reader, inner_writer = await asyncio.open_unix_connection(sock=connection)
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context, backlog=4096)
    number: int = server.sockets[0].getsockname()[1]
    return number


class Half(asyncio.Protocol):
    """One side of a forwarded connection, which writes its input to the other side."""

    other: Half
    transport: Any

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self.other.transport.close()


class Outer(Half):
    """The side with TLS, which opens the other side."""

    count = 0

    def __init__(self, inner: str) -> None:
        self._inner = inner

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        Outer.count += 1
        connection = named_socket(Outer.count)
        await loop.sock_connect(connection, self._inner)
        self.other = Half()
        self.other.other = self
        await loop.create_unix_connection(lambda: self.other, sock=connection)
        self.transport.resume_reading()


async def protocols_front(context: ssl.SSLContext, inner: str) -> int:
    """Forward between transports of the event loop."""
    server = await asyncio.get_running_loop().create_server(
        lambda: Outer(inner), "127.0.0.1", 0, ssl=context, backlog=4096
    )
    number: int = server.sockets[0].getsockname()[1]
    return number


class ForwardedConnection:
    """A forwarded connection with TLS in memory. Input is encrypted and written immediately."""

    count = 0
    buffer = bytearray(1 << 18)

    def __init__(self, loop: Any, outer: socket.socket, context: ssl.SSLContext, inner: str) -> None:
        self.loop, self.outer, self.inner_address = loop, outer, inner
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.inner: Any = None
        self.pending = b""
        loop.add_reader(outer, self.run, self.from_outer)

    def run(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (ssl.SSLWantReadError, BlockingIOError):
            return
        except OSError:
            self.close()

    def from_outer(self) -> None:
        count = self.outer.recv_into(self.buffer)
        if not count:
            raise ConnectionError
        self.incoming.write(memoryview(self.buffer)[:count])
        if self.inner is None:
            self.handshake()
        tls: Any = self.tls  # the stubs lack the return value for a buffer
        while count := tls.read(len(self.buffer), self.buffer):
            self.inner.sendall(memoryview(self.buffer)[:count])
        raise ConnectionError

    def handshake(self) -> None:
        try:
            self.tls.do_handshake()
        finally:
            if self.outgoing.pending:
                self.outer.send(self.outgoing.read())
        ForwardedConnection.count += 1
        self.inner = named_socket(ForwardedConnection.count)
        self.inner.connect(self.inner_address)
        self.loop.add_reader(self.inner, self.run, self.from_inner)

    def from_inner(self) -> None:
        count = self.inner.recv_into(self.buffer)
        if not count:
            raise ConnectionError
        self.tls.write(memoryview(self.buffer)[:count])
        self.pending = self.outgoing.read()
        self.loop.remove_reader(self.inner)
        self.loop.add_writer(self.outer, self.run, self.flush)
        self.flush()

    def flush(self) -> None:
        self.pending = self.pending[self.outer.send(self.pending) :]
        if not self.pending:
            self.loop.remove_writer(self.outer)
            self.loop.add_reader(self.inner, self.run, self.from_inner)

    def close(self) -> None:
        for side in (self.outer, self.inner):
            if side is not None and side.fileno() >= 0:
                self.loop.remove_reader(side)
                self.loop.remove_writer(side)
                side.close()


async def memory_front(context: ssl.SSLContext, inner: str) -> int:
    """Forward between sockets."""
    loop, listener = asyncio.get_running_loop(), socket.create_server(("127.0.0.1", 0), backlog=4096)
    listener.setblocking(False)

    def accept() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ForwardedConnection(loop, accepted, context, inner)

    loop.add_reader(listener, accept)
    number: int = listener.getsockname()[1]
    return number


FRONTS: dict[str, Callable[[ssl.SSLContext, str], Awaitable[int]]] = {
    "streams": streams_front,
    "asyncio": protocols_front,
    "uvloop": protocols_front,
    "memory": memory_front,
}


async def serve(variant: str, sizes: list[int], folder: pathlib.Path) -> None:
    """Serve until standard input ends. The port is printed."""
    server, key, certificate = make_server(sizes), (folder / "key.pem").read_bytes(), (folder / "cert.pem").read_bytes()
    if variant == "plain":
        port = server.add_insecure_port("127.0.0.1:0")
    elif variant == "grpc":
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    else:
        front = TlsFront()
        server.add_insecure_port(front.inner)
    await server.start()
    if variant == "product":
        port = await front.listen(
            Address("127.0.0.1", 0),
            make_context([CertificatePair(certificate, key)], certificate, TlsRules()),
            lambda _: ("client",),
        )
    elif variant in FRONTS:
        port = await FRONTS[variant](context_of(folder), "\0" + front.inner.partition(":")[2])
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)


# -- clients and measurement -------------------------------------------------------------------------------------------


def write_certificate(folder: pathlib.Path, kind: str) -> None:
    key: Any = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())
    name, now = (
        x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "bench")]),
        datetime.datetime.now(datetime.UTC),
    )
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), 1, now - datetime.timedelta(minutes=2), now + datetime.timedelta(days=1)
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
    (folder / "cert.pem").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(secret)


def cpu(pid: int) -> float:
    """Return the CPU-seconds of all threads."""
    spent = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            spent += int(pathlib.Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return spent / 1e9


def peak_mb(pid: int) -> float:
    return int(pathlib.Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


async def connect_all(port: int, root: bytes | None, connections: int, messages: int) -> None:
    """Open all connections at the same time, and wait until each has received its messages."""
    arrived, all_arrived = 0, asyncio.Event()

    async def run_stream() -> None:
        nonlocal arrived
        address = f"127.0.0.1:{port}"
        opened = (
            grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(root), CLIENT)
            if root
            else grpc.aio.insecure_channel(address, CLIENT)
        )
        async with opened as channel:
            stream: Any = channel.stream_stream
            call = stream(METHOD)()
            for _ in range(messages):
                await call.write(b"x" * 1000)
                assert await call.read()
            arrived += 1
            if arrived == connections:
                all_arrived.set()
            await all_arrived.wait()
            call.cancel()

    await asyncio.gather(*(run_stream() for _ in range(connections)))


def measure(variant: str, options: argparse.Namespace, folder: pathlib.Path) -> tuple[float, float]:
    """Return the CPU-milliseconds per connection, and the server's peak resident set in MB."""
    arguments = [sys.executable, __file__, "--serve", variant, "--sizes", options.sizes, "--folder", str(folder)]
    child = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    port, root = int(child.stdout.readline()), None if variant == "plain" else (folder / "cert.pem").read_bytes()
    messages = len(options.sizes.split(","))
    asyncio.run(connect_all(port, root, 20, messages))
    before = cpu(child.pid)
    asyncio.run(connect_all(port, root, options.connections, messages))
    spent, memory = cpu(child.pid) - before, peak_mb(child.pid)
    child.communicate()
    return 1000 * spent / options.connections, memory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=1000, help="number of connections (default 1000)")
    parser.add_argument("--sizes", default="10000,14000,24000,30000", help="sizes of the messages in bytes")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each variant (default 3)")
    parser.add_argument(
        "--variants", default=",".join(("plain", "grpc", *FRONTS, "product")), help="variants to measure"
    )
    parser.add_argument("--key", choices=("rsa", "ec"), default="rsa", help="key type of the certificate")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        loop: Any = uvloop if options.serve != "asyncio" and options.serve != "streams" else asyncio
        loop.run(serve(options.serve, [int(size) for size in options.sizes.split(",")], options.folder))
        return 0
    results: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        write_certificate(pathlib.Path(name), options.key)
        for _ in range(options.rounds):
            for variant in options.variants.split(","):
                results.setdefault(variant, []).append(measure(variant, options, pathlib.Path(name)))
                print(f"{variant:9} {results[variant][-1][0]:7.2f} ms  {results[variant][-1][1]:6.0f} MB", flush=True)
    for variant, rows in results.items():
        milliseconds, megabytes = zip(*rows, strict=True)
        print(
            f"{variant:9} {statistics.median(milliseconds):7.2f} ms ({min(milliseconds):.2f}–{max(milliseconds):.2f})  {max(megabytes):6.0f} MB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
