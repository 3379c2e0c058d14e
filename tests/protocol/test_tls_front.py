"""TLS in front of gRPC: hostile and silent peers neither harm nor bypass it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import pathlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc
import h2.config
import h2.connection
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ca.pem import key_pem, load_key
from ca.self_signed import sign_root
from ca.server_certificate import issue_server_certificates
from pilot.settings.process import ServeSettings
from pilot.xds.authn.identity import Caller, CallerGone, IdentityError
from pilot.xds.net.acceptor import ACCEPT_RETRY_DELAY
from pilot.xds.net.listen_address import Address
from pilot.xds.net.tcp_connections import TcpConnections
from pilot.xds.server import make_server
from pilot.xds.tls import front as front_module
from pilot.xds.tls.context import CertificatePair, TlsRules, make_context, parse_rules
from pilot.xds.tls.front import TlsFront
from testing.clients.secure_client import NAME, ClientCertificate, secure_channel
from testing.security.certificates import DAY, ec_key, name, root, rsa_key

SIGNER = root(8, now=datetime.datetime.now(datetime.UTC))
LARGE = 8 << 20
ADDRESSES = ("127.0.0.1", "127.0.0.2", "::1")
SWEEP_SECONDS = 1.2
"""Longer than the interval between two checks of the handshakes."""


class EchoServer(NamedTuple):
    """A TLS front before a gRPC server that records its callers and sends `LARGE` bytes for the request "large"."""

    front: TlsFront
    port: int
    callers: list[Caller]

    def channel(self, credentials: ClientCertificate | None = None) -> grpc.aio.Channel:
        return secure_channel(self.port, SIGNER.roots_pem, credentials)

    async def ask(self, channel: Any, request: bytes = b"") -> bytes:
        call: Any = channel.unary_unary("/test.Test/Ask")
        response: bytes = await call(request, timeout=10)
        return response

    async def until(self, check: Any) -> None:
        async with asyncio.timeout(20):
            while not check():
                await asyncio.sleep(0.005)


def make_server_context(rules: TlsRules = TlsRules()) -> ssl.SSLContext:
    issued = issue_server_certificates(SIGNER, [NAME], datetime.datetime.now(datetime.UTC))
    return make_context([CertificatePair(*pair) for pair in issued], SIGNER.roots_pem, rules)


class PeerContext(NamedTuple):
    """The gRPC context of a call without metadata."""

    name: str

    def peer(self) -> str:
        return self.name

    def invocation_metadata(self) -> None:
        return None


@contextlib.asynccontextmanager
async def serving_echo(front: TlsFront | None = None, **options: Any) -> AsyncIterator[EchoServer]:
    front, callers = front or TlsFront(**options), []

    async def respond(request: bytes, call: Any) -> bytes:
        try:
            callers.append(front.identify_peer(call))
        except IdentityError:
            await call.abort(grpc.StatusCode.UNAUTHENTICATED, "not from the TLS port")
        return b"x" * LARGE if request == b"large" else request

    handlers = {"Ask": grpc.unary_unary_rpc_method_handler(respond)}
    server = make_server(ServeSettings(), [grpc.method_handlers_generic_handler("test.Test", handlers)])
    server.add_insecure_port(front.inner)
    await server.start()
    port = await front.listen(Address("127.0.0.1", 0), make_server_context(), lambda _: ("client",))
    try:
        yield EchoServer(front, port, callers)
    finally:
        front.close()
        await server.stop(None)


async def test_large_messages_in_both_directions() -> None:
    async with serving_echo() as echo, echo.channel() as channel:
        assert await echo.ask(channel, b"y" * 3_000_000) == b"y" * 3_000_000
        assert len(await echo.ask(channel, b"large")) == LARGE
        [address] = {caller.address for caller in echo.callers}
        assert address.startswith("127.0.0.1:")
        assert {caller.certificate_names for caller in echo.callers} == {()}


async def test_inner_socket_refuses_other_clients() -> None:
    async with serving_echo() as echo, grpc.aio.insecure_channel(echo.front.inner) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await echo.ask(channel)
        assert (caught.value.code(), echo.callers) == (grpc.StatusCode.UNAUTHENTICATED, [])


async def test_disconnected_caller_is_distinguished_from_an_unknown_one() -> None:
    peers = list[str]()

    class Front(TlsFront):
        def identify_peer(self, context: Any) -> Caller:
            peers.append(context.peer())
            return super().identify_peer(context)

    async with serving_echo(Front()) as echo:
        async with echo.channel() as channel:
            await echo.ask(channel)
        await echo.until(lambda: is_gone(echo.front, peers[0]))
        with pytest.raises(IdentityError, match="the call did not come through the secure port"):
            echo.front.identify_peer(PeerContext("unix:"))


def is_gone(front: TlsFront, peer: str) -> bool:
    try:
        front.identify_peer(PeerContext(peer))
    except CallerGone:
        return True
    return False


@pytest.mark.parametrize(
    "data",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\xff\xff", bytes(70_000)],
)
async def test_cve_2022_23635_malformed_tls_ends_only_its_connection(data: bytes) -> None:
    async with serving_echo() as echo, echo.channel() as channel:
        await echo.ask(channel)
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
        with contextlib.suppress(OSError):
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(10):
                while await reader.read(1000):
                    pass
        writer.close()
        assert await echo.ask(channel, b"alive") == b"alive"


async def test_closing_port_ends_tls_cleanly() -> None:
    """Without a TLS close, peers could not detect a truncation attack."""
    connected = threading.Event()

    def read_to_the_end(port: int) -> bytes:
        client = ssl.create_default_context(cadata=SIGNER.roots_pem.decode())
        client.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("127.0.0.1", port), 20)
        with client.wrap_socket(raw, server_hostname=NAME, suppress_ragged_eofs=False) as secured:
            secured.sendall(h2_preface())
            while secured.recv(1000):  # the settings of the inner server: the connection is forwarded
                connected.set()
            return secured.recv(1000)

    async with serving_echo() as echo:
        reading = asyncio.create_task(asyncio.to_thread(read_to_the_end, echo.port))
        await echo.until(connected.is_set)
        echo.front.close()
        assert await reading == b""


def h2_preface() -> bytes:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    return connection.data_to_send()


class SilentPeer:
    """A peer that connects and sends nothing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int, source: str = "127.0.0.1", data: bytes = b"") -> SilentPeer:
        peer = cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))
        peer._writer.write(data)
        return peer

    @classmethod
    async def stall(cls, port: int) -> SilentPeer:
        """Return a peer that has sent a ClientHello and sends nothing else."""
        peer = await cls.connect(port)
        sent = ssl.MemoryBIO()
        client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname=NAME)
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        peer._writer.write(sent.read())
        await peer._reader.readexactly(1)  # the server has answered
        return peer

    @property
    def is_closed(self) -> bool:
        """Return whether the port has closed the connection."""
        return self._reader.at_eof() or self._writer.transport.is_closing()

    def close(self) -> None:
        self._writer.close()


async def test_slow_handshake_is_closed() -> None:
    now = 100.0
    async with serving_echo(now=lambda: now) as echo:
        peer = await SilentPeer.connect(echo.port)
        await asyncio.sleep(0.1)
        now += front_module.HANDSHAKE_TIMEOUT - 1
        await asyncio.sleep(SWEEP_SECONDS)
        assert not peer.is_closed
        now += 1
        await echo.until(lambda: peer.is_closed)
        peer.close()


async def test_silent_connections_are_evicted_for_new_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "MAX_WAITING", 4)
    evicted = list[str]()
    async with (
        serving_echo(now=lambda: 100.0, on_limit=evicted.append) as echo,
        echo.channel() as channel,
    ):
        silent = [await SilentPeer.connect(echo.port, "127.0.0.9") for _ in range(9)]
        other = await SilentPeer.connect(echo.port, "127.0.0.8")
        assert await echo.ask(channel, b"a") == b"a"
        await echo.until(lambda: sum(peer.is_closed for peer in silent) >= 7)
        assert len(evicted) >= 7
        assert set(evicted) == {"handshakes"}
        assert not other.is_closed
        for peer in (*silent, other):
            peer.close()


async def test_flood_of_frames_ends_its_connection_and_no_other() -> None:
    limits = list[str]()
    block = b"\x00\x03x-a\x05bbbbb" * 1000
    headers = len(block).to_bytes(3) + b"\x01\x00\x00\x00\x00\x01" + block
    continuation = len(block).to_bytes(3) + b"\x09\x00\x00\x00\x00\x01" + block
    async with serving_echo(on_limit=limits.append) as echo, echo.channel() as channel:
        assert await echo.ask(channel, b"a") == b"a"
        context = ssl.create_default_context(cadata=SIGNER.roots_pem.decode())
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port, ssl=context, server_hostname=NAME)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\x00" + bytes(4) + headers)
        writer.write(continuation * 20)
        with contextlib.suppress(OSError):
            while await reader.read(1 << 16):
                pass
        writer.close()
        assert limits == ["frames"]
        assert await echo.ask(channel, b"b") == b"b"


async def test_stalled_handshakes_delay_others_only_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "MAX_HANDSHAKES", 4)
    now = 100.0
    async with serving_echo(now=lambda: now) as echo, echo.channel() as channel:
        stalled = [await SilentPeer.stall(echo.port) for _ in range(4)]
        request = asyncio.create_task(echo.ask(channel, b"a"))
        await asyncio.sleep(SWEEP_SECONDS)
        assert not request.done()
        now += front_module.CROWDED_HANDSHAKE_TIMEOUT
        assert await request == b"a"
        for peer in stalled:
            peer.close()


async def test_silent_connections_delay_no_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "MAX_HANDSHAKES", 1)
    async with serving_echo(now=lambda: 100.0) as echo, echo.channel() as channel:
        silent = [await SilentPeer.connect(echo.port) for _ in range(50)]
        assert await echo.ask(channel, b"a") == b"a"
        assert not any(peer.is_closed for peer in silent)
        for peer in silent:
            peer.close()


async def test_addresses_take_turns_when_handshakes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "MAX_HANDSHAKES", 1)
    async with serving_echo(now=lambda: 100.0) as echo, echo.channel() as channel:
        stalled = await SilentPeer.stall(echo.port)
        flood = [await SilentPeer.connect(echo.port, "127.0.0.9", b"\x16\x03\x01") for _ in range(20)]
        request = asyncio.create_task(echo.ask(channel, b"a"))
        await asyncio.sleep(0.2)
        assert not request.done()
        stalled.close()  # next is a peer of the flood, and then the request
        await asyncio.sleep(0.2)
        assert not request.done()
        flood[0].close()
        assert await request == b"a"
        for peer in flood[1:]:
            peer.close()


async def test_waiting_connections_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    async with serving_echo(now=lambda: now) as echo:
        silent = await SilentPeer.connect(echo.port)
        await asyncio.sleep(0.1)
        now += front_module.HANDSHAKE_TIMEOUT
        await echo.until(lambda: silent.is_closed)
        silent.close()


@pytest.mark.parametrize("error", [ConnectionAbortedError(), OSError("too many open files")])
async def test_accept_error_only_delays_new_connections(
    error: OSError, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, errors = socket.socket.accept, [error]

    def fail_once(listener: socket.socket) -> Any:
        if errors and listener.family == socket.AF_INET:
            raise errors.pop()
        return accept(listener)

    async with serving_echo() as echo, echo.channel() as channel:
        monkeypatch.setattr(socket.socket, "accept", fail_once)
        started = time.monotonic()
        assert await echo.ask(channel, b"a") == b"a"
        assert errors == []
        is_fatal = not isinstance(error, ConnectionAbortedError)
        assert (time.monotonic() - started >= ACCEPT_RETRY_DELAY) or not is_fatal
        assert bool(caplog.messages) == is_fatal


async def test_port_keeps_connections_when_it_stops_accepting() -> None:
    async with serving_echo() as echo, echo.channel() as channel:
        assert await echo.ask(channel, b"a") == b"a"
        echo.front.stop_accepting()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", echo.port)
        assert await echo.ask(channel, b"b") == b"b"


def test_close_without_listen() -> None:
    TlsFront().close()


async def test_handshakes_continue_after_their_time_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "SLICE_SECONDS", 0.0)
    async with serving_echo() as echo, echo.channel() as channel:
        request = asyncio.create_task(echo.ask(channel, b"a"))
        await asyncio.sleep(0.2)
        assert not request.done()
        monkeypatch.setattr(front_module, "SLICE_SECONDS", 1.0)
        assert await request == b"a"


async def test_peer_that_does_not_read_is_bounded_and_can_be_reset() -> None:
    async with serving_echo() as echo:
        client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
        stream = await asyncio.to_thread(ask_and_read_nothing, client_context, echo.port)
        address = f"127.0.0.1:{stream.getsockname()[1]}"
        sockets = TcpConnections()
        await echo.until(lambda: (sockets.acked_bytes(address) or 0) > 1000)
        sockets.reset_soon(address)
        with pytest.raises(OSError, match=r"reset|EOF"):
            await asyncio.to_thread(read_all, stream)
        stream.close()


def ask_and_read_nothing(client_context: ssl.SSLContext, port: int) -> ssl.SSLSocket:
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", port))
    stream = client_context.wrap_socket(raw)
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    connection.increment_flow_control_window(2 * LARGE)
    connection.send_headers(
        1,
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/test.Test/Ask"),
            (":authority", "x"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ],
    )
    connection.increment_flow_control_window(2 * LARGE, 1)
    connection.send_data(1, b"\0" + struct.pack(">I", 5) + b"large", end_stream=True)
    stream.sendall(connection.data_to_send())
    return stream


def read_all(stream: ssl.SSLSocket) -> None:
    stream.settimeout(10)
    while stream.recv(65_536):
        pass
    raise OSError("EOF")


async def test_unverified_client_certificate_is_refused() -> None:
    async with (
        serving_echo() as echo,
        echo.channel(ClientCertificate(SIGNER.roots_pem, key_pem(SIGNER.key))) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):  # a root is no client certificate
            await echo.ask(channel)
        assert echo.callers == []


@pytest.mark.parametrize(
    ("ciphers", "oldest", "compliance", "expected"),
    [
        ((), "TLSV1_2", "", "TLSv1.3"),
        ((), "TLSV1_3", "", "TLSv1.3"),
        (("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"), "TLSV1_2", "", "TLSv1.3"),
        ((), "TLSV1_2", "fips-140-2", "TLSv1.2"),
        ((), "TLSV1_2", "fips-140-3", "TLSv1.3"),
    ],
)
async def test_tls_versions(ciphers: tuple[str, ...], oldest: str, compliance: str, expected: str) -> None:
    async with serving_echo() as echo:
        echo.front.use_context(make_server_context(parse_rules(ciphers, oldest, compliance)))
        assert await negotiated_version(echo.port) == expected
        assert await negotiated_version(echo.port, ssl.TLSVersion.TLSv1_2) == (
            None if oldest == "TLSV1_3" else "TLSv1.2"
        )


def test_ciphers_for_tls_1_2() -> None:
    tls_context = make_server_context(
        parse_rules(("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"), "", "")
    )
    assert [c["name"] for c in tls_context.get_ciphers() if c["protocol"] != "TLSv1.3"] == [
        "ECDHE-ECDSA-AES256-GCM-SHA384"
    ]


def test_no_key_file_stays_open() -> None:
    tls_context = make_server_context(parse_rules((), "", ""))
    targets = [os.readlink(file) for file in pathlib.Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert not [file for file in targets if "memfd:certificate" in file], tls_context


async def negotiated_version(port: int, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> str | None:
    """Return the negotiated version, or None."""
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
    client_context.maximum_version = newest
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
    except (ssl.SSLError, ConnectionError):
        return None
    tls_version: str = writer.get_extra_info("ssl_object").version()
    writer.close()
    return tls_version


@pytest.mark.parametrize(
    ("ciphers", "oldest", "compliance", "reason"),
    [
        (("TLS_RSA_WITH_ROT13",), "", "", "tls-cipher-suites: unknown cipher suite 'TLS_RSA_WITH_ROT13'"),
        ((), "TLSV1_1", "", "tls-min-version: 'TLSV1_1'"),
        ((), "", "pqc", "COMPLIANCE_POLICY 'pqc' is not supported"),
    ],
)
def test_invalid_tls_rules(ciphers: tuple[str, ...], oldest: str, compliance: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_rules(ciphers, oldest, compliance)


def test_key_types_of_the_serving_certificates() -> None:
    now = datetime.datetime.now(datetime.UTC)
    for key, expected in (
        (rsa_key(), [rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey]),
        (ec_key(), [ec.EllipticCurvePrivateKey]),
    ):
        issued = issue_server_certificates(sign_root(key, name("a"), DAY, now), [NAME], now)
        assert [
            key_type
            for pair, key_type in zip(issued, expected, strict=True)
            if not isinstance(load_key(pair.key, "here"), key_type)
        ] == []
        assert "PRIVATE" not in repr(issued)


async def test_closed_port_can_be_reused() -> None:
    front = TlsFront()
    port = await front.listen(Address("127.0.0.1", 0), make_server_context(), lambda _: ())
    front.close()
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize(
    ("host", "addresses"),
    [("127.0.0.1", {"127.0.0.1"}), ("::1", {"::1"}), ("", {"127.0.0.1", "127.0.0.2", "::1"})],
)
async def test_port_listens_only_on_its_address(host: str, addresses: set[str]) -> None:
    front = TlsFront()
    port = await front.listen(Address(host, 0), make_server_context(), lambda _: ())
    try:
        assert {address for address in ADDRESSES if is_open(address, port)} == addresses
    finally:
        front.close()


def is_open(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 5).close()
    except OSError:
        return False
    return True
