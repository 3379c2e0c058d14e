"""TLS in front of gRPC: nothing of what peers send, or leave unsent, harms it, and nobody gets past it."""

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
from pilot.xds.authn.identity import Caller, IdentityError
from pilot.xds.net.listen_address import Address
from pilot.xds.net.tcp_connections import TcpConnections
from pilot.xds.server import make_server
from pilot.xds.tls import front as front_module
from pilot.xds.tls.context import CertificatePair, TlsRules, make_context, parse_rules
from pilot.xds.tls.front import TlsFront
from testing.clients.secure_client import NAME, Shown, secure_channel
from testing.security.certificates import DAY, ec_key, name, root, rsa_key

SIGNER = root(8, now=datetime.datetime.now(datetime.UTC))
LARGE = 8 << 20
ADDRESSES = ("127.0.0.1", "127.0.0.2", "::1")
SWEEP_SECONDS = 1.2
"""Time in which the port checks its handshakes at least once."""


class Echo(NamedTuple):
    """A front before a server that says who calls, and sends `LARGE` bytes to who asks for "large"."""

    front: TlsFront
    port: int
    callers: list[Caller]

    def channel(self, shown: Shown | None = None) -> grpc.aio.Channel:
        return secure_channel(self.port, SIGNER.roots_pem, shown)

    async def ask(self, channel: Any, request: bytes = b"") -> bytes:
        call: Any = channel.unary_unary("/test.Test/Ask")
        answer: bytes = await call(request, timeout=10)
        return answer

    async def until(self, check: Any) -> None:
        async with asyncio.timeout(20):
            while not check():
                await asyncio.sleep(0.005)


def context(rules: TlsRules = TlsRules()) -> ssl.SSLContext:
    issued = issue_server_certificates(SIGNER, [NAME], datetime.datetime.now(datetime.UTC))
    return make_context([CertificatePair(*one) for one in issued], SIGNER.roots_pem, rules)


@contextlib.asynccontextmanager
async def echo(**options: Any) -> AsyncIterator[Echo]:
    made, callers = TlsFront(**options), []

    async def answer(request: bytes, call: Any) -> bytes:
        try:
            callers.append(made.identify_peer(call))
        except IdentityError:
            await call.abort(grpc.StatusCode.UNAUTHENTICATED, "not through the port")
        return b"x" * LARGE if request == b"large" else request

    handlers = {"Ask": grpc.unary_unary_rpc_method_handler(answer)}
    server = make_server(ServeSettings(), [grpc.method_handlers_generic_handler("test.Test", handlers)])
    server.add_insecure_port(made.inner)
    await server.start()
    port = await made.listen(Address("127.0.0.1", 0), context(), lambda _: ("somebody",))
    try:
        yield Echo(made, port, callers)
    finally:
        made.close()
        await server.stop(None)


async def test_large_messages_pass_in_both_directions() -> None:
    async with echo() as it, it.channel() as channel:
        assert await it.ask(channel, b"y" * 3_000_000) == b"y" * 3_000_000
        assert len(await it.ask(channel, b"large")) == LARGE
        [address] = {caller.address for caller in it.callers}
        assert address.startswith("127.0.0.1:")
        assert {caller.certificate_names for caller in it.callers} == {()}


async def test_who_connects_to_the_inner_socket_is_refused() -> None:
    async with echo() as it, grpc.aio.insecure_channel(it.front.inner) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.ask(channel)
        assert (caught.value.code(), it.callers) == (grpc.StatusCode.UNAUTHENTICATED, [])


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\xff\xff", bytes(70_000)],
)
async def test_cve_2022_23635_what_is_no_tls_ends_its_own_connection_alone(sent: bytes) -> None:
    async with echo() as it, it.channel() as channel:
        await it.ask(channel)
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        with contextlib.suppress(OSError):
            writer.write(sent)
            writer.write_eof()
            async with asyncio.timeout(10):
                while await reader.read(1000):
                    pass
        writer.close()
        assert await it.ask(channel, b"still there") == b"still there"


async def test_peers_are_told_by_tls_that_the_port_closes() -> None:
    """Else they could not tell the end from an attacker's."""
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

    async with echo() as it:
        reading = asyncio.create_task(asyncio.to_thread(read_to_the_end, it.port))
        await it.until(connected.is_set)
        it.front.close()
        assert await reading == b""


def h2_preface() -> bytes:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    return connection.data_to_send()


class Silent:
    """A peer that connects and sends nothing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Silent:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    @property
    def is_closed(self) -> bool:
        """Whether the port has closed the connection."""
        return self._reader.at_eof()

    def close(self) -> None:
        self._writer.close()


async def test_a_handshake_that_takes_too_long_is_closed() -> None:
    now = 100.0
    async with echo(now=lambda: now) as it:
        peer = await Silent.connect(it.port)
        await asyncio.sleep(0.1)
        now += front_module.HANDSHAKE_TIMEOUT - 1
        await asyncio.sleep(SWEEP_SECONDS)
        assert not peer.is_closed
        now += 1
        await it.until(lambda: peer.is_closed)
        peer.close()


async def test_peers_that_send_nothing_delay_others_only_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "MAX_HANDSHAKES", 4)
    now = 100.0
    async with echo(now=lambda: now) as it, it.channel() as channel:
        silent = [await Silent.connect(it.port) for _ in range(9)]
        asked = asyncio.create_task(it.ask(channel, b"a"))
        await asyncio.sleep(SWEEP_SECONDS)
        for closed in (4, 8):
            assert not asked.done()
            now += front_module.CROWDED_HANDSHAKE_TIMEOUT
            await it.until(lambda closed=closed: sum(peer.is_closed for peer in silent) == closed)
        assert await asked == b"a"
        for peer in silent:
            peer.close()


async def test_a_full_port_accepts_again_when_half_of_the_handshakes_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "MAX_HANDSHAKES", 4)
    async with echo() as it, it.channel() as channel:
        silent = [await Silent.connect(it.port) for _ in range(4)]
        asked = asyncio.create_task(it.ask(channel, b"a"))
        for peer in silent[:2]:
            await asyncio.sleep(0.2)
            assert not asked.done()
            peer.close()
        assert await asked == b"a"
        for peer in silent[2:]:
            peer.close()


@pytest.mark.parametrize("error", [ConnectionAbortedError(), OSError("too many open files")])
async def test_an_error_of_accept_delays_new_connections_at_most(
    error: OSError, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, errors = socket.socket.accept, [error]

    def fail_once(listener: socket.socket) -> Any:
        if errors and listener.family == socket.AF_INET:
            raise errors.pop()
        return accept(listener)

    async with echo() as it, it.channel() as channel:
        monkeypatch.setattr(socket.socket, "accept", fail_once)
        started = time.monotonic()
        assert await it.ask(channel, b"a") == b"a"
        assert errors == []
        is_fatal = not isinstance(error, ConnectionAbortedError)
        assert (time.monotonic() - started >= front_module.ACCEPT_RETRY_DELAY) or not is_fatal
        assert bool(caplog.messages) == is_fatal


async def test_a_port_that_stops_accepting_keeps_its_connections() -> None:
    async with echo() as it, it.channel() as channel:
        assert await it.ask(channel, b"a") == b"a"
        it.front.stop_accepting()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", it.port)
        assert await it.ask(channel, b"b") == b"b"


def test_a_port_that_never_listened_can_be_closed() -> None:
    TlsFront().close()


async def test_handshakes_that_use_up_their_slice_go_on_in_a_later_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "SLICE_SECONDS", 0.0)
    async with echo() as it, it.channel() as channel:
        asked = asyncio.create_task(it.ask(channel, b"a"))
        await asyncio.sleep(0.2)
        assert not asked.done()
        monkeypatch.setattr(front_module, "SLICE_SECONDS", 1.0)
        assert await asked == b"a"


async def test_a_peer_that_takes_nothing_holds_a_bounded_part_and_can_be_reset() -> None:
    async with echo() as it:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        stuck = await asyncio.to_thread(ask_and_read_nothing, made, it.port)
        address = f"127.0.0.1:{stuck.getsockname()[1]}"
        sockets = TcpConnections()
        await it.until(lambda: (sockets.acked_bytes(address) or 0) > 1000)
        sockets.reset_soon(address)
        with pytest.raises(OSError, match=r"reset|EOF"):
            await asyncio.to_thread(read_all, stuck)
        stuck.close()


def ask_and_read_nothing(made: ssl.SSLContext, port: int) -> ssl.SSLSocket:
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", port))
    stream = made.wrap_socket(raw)
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


async def test_a_certificate_is_asked_for_its_names_once_tls_has_verified_it() -> None:
    async with echo() as it, it.channel(Shown(SIGNER.roots_pem, key_pem(SIGNER.key))) as channel:
        with pytest.raises(
            grpc.aio.AioRpcError, match="UNAVAILABLE"
        ):  # a root is no certificate of a client: it may sign alone
            await it.ask(channel)
        assert it.callers == []


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
async def test_versions_of_tls(ciphers: tuple[str, ...], oldest: str, compliance: str, expected: str) -> None:
    async with echo() as it:
        it.front.use_context(context(parse_rules(ciphers, oldest, compliance)))
        assert await version(it.port) == expected
        assert await version(it.port, ssl.TLSVersion.TLSv1_2) == (None if oldest == "TLSV1_3" else "TLSv1.2")


def test_ciphers_up_to_tls_1_2_are_those_that_were_said() -> None:
    made = context(parse_rules(("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"), "", ""))
    assert [c["name"] for c in made.get_ciphers() if c["protocol"] != "TLSv1.3"] == ["ECDHE-ECDSA-AES256-GCM-SHA384"]


def test_no_file_with_a_key_stays_open() -> None:
    kept = context(parse_rules((), "", ""))
    opened = [os.readlink(file) for file in pathlib.Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert not [file for file in opened if "memfd:certificate" in file], kept


async def version(port: int, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> str | None:
    """The version that is agreed on, None for none."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.maximum_version = newest
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=made)
    except (ssl.SSLError, ConnectionError):
        return None
    found: str = writer.get_extra_info("ssl_object").version()
    writer.close()
    return found


@pytest.mark.parametrize(
    ("ciphers", "oldest", "compliance", "reason"),
    [
        (("TLS_RSA_WITH_ROT13",), "", "", "tls-cipher-suites: unknown cipher suite 'TLS_RSA_WITH_ROT13'"),
        ((), "TLSV1_1", "", "tls-min-version: 'TLSV1_1'"),
        ((), "", "pqc", "COMPLIANCE_POLICY 'pqc' is not supported"),
    ],
)
def test_rules_of_tls_that_cannot_be_kept(ciphers: tuple[str, ...], oldest: str, compliance: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_rules(ciphers, oldest, compliance)


def test_keys_of_the_port_are_of_the_signers_kind_and_of_p_256_beside_rsa() -> None:
    now = datetime.datetime.now(datetime.UTC)
    for key, expected in (
        (rsa_key(), [rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey]),
        (ec_key(), [ec.EllipticCurvePrivateKey]),
    ):
        issued = issue_server_certificates(sign_root(key, name("a"), DAY, now), [NAME], now)
        assert [
            kind for one, kind in zip(issued, expected, strict=True) if not isinstance(load_key(one.key, "here"), kind)
        ] == []
        assert "PRIVATE" not in repr(issued)


async def test_a_port_that_is_closed_can_be_had_again() -> None:
    front = TlsFront()
    port = await front.listen(Address("127.0.0.1", 0), context(), lambda _: ())
    front.close()
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize(
    ("host", "addresses"),
    [("127.0.0.1", {"127.0.0.1"}), ("::1", {"::1"}), ("", {"127.0.0.1", "127.0.0.2", "::1"})],
)
async def test_a_port_is_open_only_on_its_address(host: str, addresses: set[str]) -> None:
    front = TlsFront()
    port = await front.listen(Address(host, 0), context(), lambda _: ())
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
