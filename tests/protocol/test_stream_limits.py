"""Limits of streams and connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import h2.settings
import hpack
import pytest
from envoy.service.discovery.v3 import discovery_pb2

from pilot.lib.duration import parse_duration
from pilot.lib.xds_types import BY_SHORT_NAME, HEALTH
from pilot.settings.process import ServeSettings
from pilot.xds import ads
from pilot.xds.admission import StreamLimits
from pilot.xds.ads import MAX_STATUS_LENGTH
from pilot.xds.authn.identity import Caller, plaintext_caller
from pilot.xds.caller_budgets import CallerBudgets, CallerLimits
from pilot.xds.session.session import MAX_ERROR_LENGTH, Session
from testing.clients.ads import NODE, OPTIONS, Client, header_identities, serving
from testing.clients.scripted_stream import delta, sotw

PATH = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PATH),
    (":authority", "x"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]
BOTH_VARIANTS = pytest.mark.parametrize("variant", ["sotw", "delta"])


@BOTH_VARIANTS
async def test_stream_with_too_many_names_is_refused(variant: str) -> None:
    async with (
        serving(stream_limits=StreamLimits(names=5)) as server,
        Client(server, variant) as client,
        Client(server, variant) as other,
    ):
        server.set("eds", a="1")
        await other.request("eds", *"abcde")
        await other.receive()
        await client.request("rds", *"abc")
        await client.receive()
        await client.request("eds", *"abc")
        assert await client.end_status() == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "the stream requests 6 resource names; at most 5 are allowed (PILOT_XDS_MAX_NAMES)",
        )
        await server.eventually(lambda: len(server.discovery.connections()) == 1)


@BOTH_VARIANTS
async def test_stream_with_too_many_types_is_refused(variant: str) -> None:
    async with serving(stream_limits=StreamLimits(types=2)) as server, Client(server, variant) as client:
        for kind in ("cds", "lds", "made-up"):
            await client.request(kind)
        assert await client.end_status() == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "the stream subscribes to more than 2 types (PILOT_XDS_MAX_TYPES)",
        )


async def test_oversized_node_metadata_is_refused() -> None:
    async with (
        serving(stream_limits=StreamLimits(node_bytes=500)) as server,
        Client(server, LABELS={"app": "x" * 600}) as client,
    ):
        await client.request("cds")
        code, details = await client.end_status()
        assert (code, details.endswith("bytes; at most 500 are allowed (PILOT_XDS_MAX_NODE_BYTES)")) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            True,
        )
        assert not server.discovery.connections()


async def test_long_names_and_types_of_a_stream_are_refused() -> None:
    async with serving(stream_limits=StreamLimits(name_bytes=10_000)) as server:
        for requests in (
            [("eds", "a" * 4000, "b" * 4000, "c" * 4000)],
            [("eds", *(f"{n:0400}" for n in range(10))), ("rds", *(f"{n:0400}" for n in range(20)))],
            [("x" * 6000,), ("y" * 6000,)],
        ):
            async with Client(server) as client:
                for request in requests:
                    await client.request(*request)
                code, details = await client.end_status()
                assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert details.endswith("bytes; at most 10000 are allowed (PILOT_XDS_MAX_NAME_BYTES)")
        assert server.metric('pilot_caller_limits_exceeded{limit="stream_size"} 3')


async def test_names_of_all_streams_of_a_caller_are_limited_and_other_callers_are_served() -> None:
    budgets = CallerBudgets(CallerLimits(held_bytes=50_000))
    async with (
        serving(budgets=budgets, authenticate=header_identities, authorize=lambda *_: "") as server,
        contextlib.AsyncExitStack() as stack,
    ):
        server.set("cds", a="1")
        ends = list[Any]()
        for number in range(5):
            client = await stack.enter_async_context(Client(server, identities="spiffe://td/ns/a/sa/hostile"))
            await client.request("eds", *(f"{number}-{index:0100}" for index in range(100)))
            ends.append(client)
        code, details = await ends[-1].end_status()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details.endswith("bytes; at most 50000 are allowed (PILOT_XDS_MAX_CALLER_BYTES)")
        assert server.metric('pilot_caller_limits_exceeded{limit="held_bytes"} 2')
        honest = await stack.enter_async_context(Client(server, identities="spiffe://td/ns/a/sa/honest"))
        await honest.request("cds")
        await honest.expect("cds", "a")


async def test_streams_of_a_caller_on_several_connections_are_limited_and_other_callers_are_served() -> None:
    budgets = CallerBudgets(CallerLimits(streams=3))
    async with (
        serving(budgets=budgets, authenticate=header_identities, authorize=lambda *_: "") as server,
        contextlib.AsyncExitStack() as stack,
    ):
        server.set("cds", a="1")
        for _ in range(3):
            client = await stack.enter_async_context(Client(server))
            await client.request("cds")
            await client.expect("cds", "a")
        refused = await stack.enter_async_context(Client(server))
        assert await refused.end_status() == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "this caller has 3 open streams; at most 3 are allowed (PILOT_XDS_MAX_CALLER_STREAMS)",
        )
        assert server.metric('pilot_caller_limits_exceeded{limit="streams"} 1')
        honest = await stack.enter_async_context(Client(server, identities="spiffe://td/ns/a/sa/honest"))
        await honest.request("cds")
        await honest.expect("cds", "a")


async def test_silent_streams_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ads, "FIRST_REQUEST_TIMEOUT", 0.05)
    async with serving() as server, Client(server) as silent, Client(server) as reports:
        await reports.request(HEALTH)  # a report is not a request
        for client in (silent, reports):
            assert await client.end_status() == (
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "no request has arrived within 0 s",
            )
        assert server.metric('pilot_caller_limits_exceeded{limit="first_request"} 2')


async def test_status_text_is_truncated_to_one_line() -> None:
    async with (
        serving() as server,
        Client(server, "delta", "main\nframe" * 10_000 + "~10.0.0.1~pod.ns~ns.svc") as client,
    ):
        await client.request("cds")
        code, details = await client.end_status()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert len(details) <= MAX_STATUS_LENGTH + 30
        assert "\n" not in details


@pytest.mark.parametrize("make", [sotw, delta])
def test_nack_text_is_truncated(make: Callable[[], Session]) -> None:
    session = make()
    request: Any = (discovery_pb2.DiscoveryRequest if make is sotw else discovery_pb2.DeltaDiscoveryRequest)(
        type_url=BY_SHORT_NAME["cds"]
    )
    session.receive(request)
    request.error_detail.code, request.error_detail.message = 3, "no " * 100_000
    received = session.receive(request)
    assert received.rejected is not None
    assert received.rejected[1].startswith("no no")
    assert len(received.rejected[1]) <= MAX_ERROR_LENGTH + 30
    assert session.subscriptions[BY_SHORT_NAME["cds"]].last_error == received.rejected[1]


async def test_keepalive_timeout() -> None:
    settings = ServeSettings(keepalive_interval=parse_duration("200ms"), keepalive_timeout=parse_duration("100ms"))
    async with serving(settings=settings) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(
                connection, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
            )
            async with asyncio.timeout(8):  # the default is a minute after the interval
                while await loop.sock_recv(connection, 65536):
                    pass


async def test_oversized_request_ends_the_stream() -> None:
    async with (
        serving(settings=ServeSettings(max_receive_bytes=1000)) as server,
        Client(server, node_id=NODE + "x" * 2000) as client,
    ):
        await client.request("cds")
        assert (await client.end_status())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_compressed_request_that_expands_ends_the_stream() -> None:
    async with serving(settings=ServeSettings(max_receive_bytes=100_000)) as server:
        channel: Any = grpc.aio.insecure_channel(
            f"127.0.0.1:{server.port}", compression=grpc.Compression.Gzip, options=OPTIONS
        )
        async with channel:
            call = channel.stream_stream(PATH)()
            await call.write(bytes(10_000_000))
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.metrics.value("pilot_xds_recv_max") == 0.0


async def test_connection_at_its_maximum_age_gets_a_goaway() -> None:
    async with serving(settings=ServeSettings(max_connection_age=parse_duration("100ms"))) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(
                connection, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
            )
            received = b""
            async with asyncio.timeout(8):
                while b"max_age" not in received:
                    data = await loop.sock_recv(connection, 65536)
                    assert data, received
                    received += data


async def test_maximum_streams_per_connection() -> None:
    async with serving(settings=ServeSettings(max_streams=2)) as server:
        allowed, refused = await asyncio.to_thread(streams_of, server.port, 3)
        assert allowed == 2
        assert refused == [5], "the third stream"


def streams_of(port: int, streams: int) -> tuple[int, list[int]]:
    """Open streams on a connection and leave them open. Return the allowed number of streams and the refused ones."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(client.data_to_send())
        while not any(
            isinstance(event, h2.events.RemoteSettingsChanged) for event in client.receive_data(connection.recv(65536))
        ):
            pass
        allowed = client.remote_settings.max_concurrent_streams
        client.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 100  # the client ignores the limit
        client.remote_settings.acknowledge()
        for number in range(1, 2 * streams, 2):
            client.send_headers(number, HEADERS)
        connection.sendall(client.data_to_send())
        while not (
            refused := [
                event.stream_id
                for event in client.receive_data(connection.recv(65536))
                if isinstance(event, h2.events.StreamReset)
            ]
        ):
            connection.sendall(client.data_to_send())
    return allowed, refused


async def test_streams_that_are_opened_and_reset_do_not_accumulate() -> None:
    """A stream counts towards the limit of its connection until the server has removed it, even if it was reset."""
    started = 0

    def identify_peer(context: Any) -> Caller:
        nonlocal started
        started += 1
        return plaintext_caller(context)

    async with serving(identify_peer=identify_peer) as server:
        await asyncio.to_thread(open_and_reset, server.port, 20_000)
        async with Client(server) as client:
            server.set("cds", a="1")
            await client.request("cds")
            await client.expect("cds", "a")
        assert started < 5000


def open_and_reset(port: int, streams: int) -> None:
    """Open and reset streams without waiting for the server, and return when it has processed all of them.

    The headers of all but the first stream refer to the table of compressed headers.
    """
    encoder, frames = hpack.Encoder(), bytearray()
    for number in range(1, 2 * streams, 2):
        frames += frame(1, 4, number, encoder.encode(HEADERS)) + frame(3, 0, number, bytes((0, 0, 0, 8)))
    sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + bytes(frames) + frame(6, 0, 0, b"the end.")
    received, acknowledgement = bytearray(), frame(6, 1, 0, b"the end.")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        sending = threading.Thread(target=connection.sendall, args=(sent,))
        sending.start()
        while acknowledgement not in received:
            data = connection.recv(1 << 20)
            assert data, "the server has closed the connection"
            received += data
        sending.join()


async def test_flood_of_pings_is_answered() -> None:
    """The server does not treat pings as an error, which costs it much more than an answer."""
    async with serving() as server:
        assert await asyncio.to_thread(answered_pings, server.port, 2000) == 2000


def answered_pings(port: int, pings: int) -> int:
    """Send pings, and return the number of answers before the connection ends."""
    received, answer = bytearray(), frame(6, 1, 0, b"12345678")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(6, 0, 0, b"12345678") * pings)
        while received.count(answer) < pings and (data := connection.recv(1 << 20)):
            received += data
    return received.count(answer)


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """Return an HTTP/2 frame."""
    return len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body


def flood_frames() -> dict[str, bytes]:
    """Return floods of HTTP/2 frames, each of about 1 MB."""
    block = hpack.Encoder().encode(HEADERS)
    stream = frame(1, 4, 1, block)
    setting = (4).to_bytes(2) + (65535).to_bytes(4)
    encoder = hpack.Encoder()
    first = encoder.encode([*HEADERS, ("large", "v" * 3000)])
    references = encoder.encode([*HEADERS, *[("large", "v" * 3000)] * 4])
    return {
        "SETTINGS": frame(4, 0, 0, setting) * 60_000,
        "window sizes": stream + b"".join(frame(4, 0, 0, setting[:5] + bytes((n & 1,))) for n in range(60_000)),
        "CONTINUATION": frame(1, 0, 1, block) + frame(9, 0, 1, b"\x00\x03x-a\x05bbbbb" * 1000) * 90,
        "empty CONTINUATION": frame(1, 0, 1, block) + frame(9, 0, 1) * 100_000,
        "WINDOW_UPDATE": stream + (frame(8, 0, 1, (1).to_bytes(4)) + frame(8, 0, 0, (1).to_bytes(4))) * 38_000,
        "empty DATA": stream + frame(0, 0, 1) * 110_000,
        "PRIORITY": frame(2, 0, 1, bytes(5)) * 70_000,
        "unknown": frame(77, 0, 0) * 110_000,
        "references to the header table": frame(1, 4, 1, first)
        + b"".join(frame(1, 4, n, references) + frame(3, 0, n, bytes((0, 0, 0, 8))) for n in range(3, 40_000, 2)),
        "empty messages": stream + frame(0, 0, 1, bytes(5) * 3000) * 4,
    }


@pytest.mark.parametrize("kind", flood_frames())
async def test_flood_of_frames_leaves_other_connections_served(kind: str) -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds", a="1")
        await client.request("cds")
        nonce = await client.expect("cds", "a")
        floods = [asyncio.to_thread(send, server.port, flood_frames()[kind]) for _ in range(3)]
        flooding = asyncio.gather(*floods)
        for content in "23456":
            server.set("cds", a=content)
            await client.request("cds", nonce=nonce)
            nonce = await client.expect("cds", "a")
        await flooding
        assert len(server.discovery.connections()) == 1


def send(port: int, frames: bytes) -> None:
    """Send frames until all are sent or the server closes the connection, and discard what it sends."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection, contextlib.suppress(OSError):
        reading = threading.Thread(target=discard, args=(connection,), daemon=True)
        reading.start()
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frames)


def discard(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(1 << 20):
            pass


def statuses_of(port: int, streams: int) -> Counter[str]:
    """Open many streams at once, half-close them without a request, and return their statuses."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    statuses: Counter[str] = Counter()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(client.data_to_send())
        while (
            not isinstance(client.remote_settings.max_concurrent_streams, int)
            or client.remote_settings.max_concurrent_streams < streams
        ):
            client.receive_data(connection.recv(65536))
        for number in range(1, 2 * streams, 2):
            client.send_headers(number, HEADERS, end_stream=True)
        connection.sendall(client.data_to_send())
        while statuses.total() < streams:
            for event in client.receive_data(connection.recv(65536)):
                if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                    statuses.update(value.decode() for name, value in event.headers if name == b"grpc-status")
            connection.sendall(client.data_to_send())
    return statuses


async def test_flood_of_streams_is_served() -> None:
    async with serving(settings=ServeSettings(max_streams=2000)) as server:
        assert await asyncio.to_thread(statuses_of, server.port, 2000) == {"0": 2000}
