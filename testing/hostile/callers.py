"""Hostile callers of the ports: each kind connects, sends, holds its connections for a while, and disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
from envoy.service.discovery.v3 import discovery_pb2

from ca.service import SERVICE as CA_SERVICE
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.xds.ads import SERVICE
from protos import ca_pb2
from testing.clients.ads import OPTIONS
from testing.hostile.search import Choices

HOLD_SECONDS = 0.7
"""Number of seconds for which callers hold their connections."""
Ports = Mapping[str, int]
"""Port numbers by the flags of pilot-discovery."""
Attack = Callable[[Any], Awaitable[None]]
"""Sends an input to a control plane or its ports."""
HTTP_PORTS = ("httpAddr", "monitoringAddr", "httpsAddr")
KINDS = ("cds", "eds", "lds", "rds", "nds", "sds", "ecds")
UNVERIFIED = ssl.create_default_context()
UNVERIFIED.check_hostname, UNVERIFIED.verify_mode = False, ssl.CERT_NONE


class Input:
    """The input of a family of callers: its description and size, and the function that sends it."""

    def __init__(self, description: Any, size: int, attack: Attack) -> None:
        self.description, self.size, self.attack = description, size, attack


def node_metadata(c: Choices) -> Input:
    request = discovery_pb2.DiscoveryRequest(type_url=BY_SHORT_NAME[c.pick("type", KINDS)])
    addresses = ",".join(f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in range(c.count("addresses", 50_000)))
    name = f"{uuid.uuid4().hex}{'x' * c.count('name', 10_000)}"
    request.node.id = (
        f"{c.pick('role', ('sidecar', 'router', 'waypoint'))}~10.66.0.1~{name}.hostile~hostile.svc.cluster.local"
    )
    labels = {f"l{n}": "v" * c.count("label", 2000) for n in range(c.count("labels", 10_000))}
    deep: Any = {}
    for _ in range(c.count("depth", 80)):
        deep = {"a": deep}
    request.node.metadata.update({"NAMESPACE": "hostile", "LABELS": labels, "INSTANCE_IPS": addresses, "DEEP": deep})
    request.resource_names.extend(f"n{n}" for n in range(c.count("names", 50_000)))
    return _streams(c, request, 60)


def subscriptions(c: Choices) -> Input:
    request = discovery_pb2.DiscoveryRequest(type_url=BY_SHORT_NAME[c.pick("type", KINDS)])
    request.node.id = "sidecar~10.66.0.2~asks.hostile~hostile.svc.cluster.local"
    shape = c.pick(
        "shape", ("outbound|80||h{}.hostile.svc.cluster.local", "{}", "kubernetes://s{}", "istio.io/{}", "|||{}")
    )
    padding = "x" * c.count("padding", 20_000)
    request.resource_names.extend(shape.format(n) + padding for n in range(c.count("names", 50_000)))
    return _streams(c, request, 100)


def silent_streams(c: Choices) -> Input:
    return _streams(c, None, 3000)


def _streams(c: Choices, request: Any, most: int) -> Input:
    """Return streams that send a request several times, and do not read."""
    data = [] if request is None else [request.SerializeToString()] * max(1, c.count("requests", 20))
    streams, connections = max(1, c.count("streams", most)), max(1, c.count("connections", 20))
    method = c.pick("method", ("StreamAggregatedResources", "DeltaAggregatedResources"))
    resets = c.pick("end", (False, True))

    async def attack(ports: Ports) -> None:
        channels: list[Any] = [
            grpc.aio.insecure_channel(f"127.0.0.1:{ports['grpcAddr']}", [*OPTIONS, ("grpc.channel_id", n)])
            for n in range(connections)
        ]

        async def stream(channel: Any) -> None:
            call = channel.stream_stream(f"/{SERVICE}/{method}")()
            with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError):
                for message in data:
                    await call.write(message)
            if resets:
                call.cancel()
            await asyncio.sleep(HOLD_SECONDS)
            call.cancel()

        await asyncio.gather(*(stream(channels[n % connections]) for n in range(streams)), return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in channels))

    return Input(dict(c.genes), streams * (100 + sum(map(len, data))), attack)


def silent_connections(c: Choices) -> Input:
    """Return connections that send a part of a handshake."""
    flag = c.pick("port", ("secureGRPCAddr", "httpsAddr", "grpcAddr", "httpAddr", "monitoringAddr"))
    opening = c.pick("opening", (b"", b"\x16\x03\x01\x40\x00\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /ready"))
    return _sockets(max(1, c.count("connections", 900)), flag, opening, c.genes)


def slow_bodies(c: Choices) -> Input:
    flag = c.pick("port", HTTP_PORTS)
    path = c.pick("path", ("/inject", "/validate", "/debug/syncz", "/ready", "/"))
    announced = c.pick("announced", (b"Content-Length: 999999\r\n", b"Transfer-Encoding: chunked\r\n"))
    sent = c.count("sent", 200_000)
    body = b"%x\r\n" % (sent + 1) + b"a" * sent if announced.startswith(b"T") else b"a" * sent
    headers = b"".join(b"X-%d: %s\r\n" % (n, b"a" * c.count("header", 5000)) for n in range(c.count("headers", 1000)))
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path.encode()
    return _sockets(max(1, c.count("connections", 900)), flag, head + headers + announced + b"\r\n" + body, c.genes)


def requests(c: Choices) -> Input:
    """Return complete requests of pages, several on each connection."""
    pages = ("/debug/configz", "/debug/syncz", "/debug/config_dump?proxyID=", "/metrics", "/debug/problemz", "/version")
    query = c.pick("separator", ("&a=", "?a=", "%2e", "/")) * c.count("query", 3000)
    line = (
        f"GET {c.pick('page', pages)}{query} HTTP/1.1\r\nHost: {c.pick('host', ('localhost', 'evil.example'))}\r\n\r\n"
    )
    data = line.encode() * max(1, c.count("requests", 500))
    return _sockets(max(1, c.count("connections", 100)), c.pick("port", HTTP_PORTS), data, c.genes)


def _sockets(count: int, flag: str, data: bytes, genes: Mapping[str, int]) -> Input:
    tls = UNVERIFIED if flag == "httpsAddr" and not data.startswith((b"\x16", b"PRI")) and data else None

    async def connection(port: int) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port, ssl=tls), 10)
            writer.write(data)
            await asyncio.sleep(HOLD_SECONDS)
            writer.transport.abort()
            del reader

    async def attack(ports: Ports) -> None:
        await asyncio.gather(*(connection(ports[flag]) for _ in range(count)))

    return Input(dict(genes), count * (len(data) + 100), attack)


def junk_tokens(c: Choices) -> Input:
    """Return certificate requests over TLS with tokens and CSRs that are junk."""
    token = c.text("token", ("eyJhbGciOiJSUzI1NiJ9", ".", "e30", "a", "=", "-_"), 100_000) or "a"
    request = c.text("csr", ("-----BEGIN CERTIFICATE REQUEST-----\n", "MIIB", "\n", "-----END"), 100_000)
    message = ca_pb2.IstioCertificateRequest(csr=request).SerializeToString()
    count, connections = max(1, c.count("calls", 1000)), max(1, c.count("connections", 20))

    async def attack(ports: Ports) -> None:
        port = ports["secureGRPCAddr"]
        pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        credentials = grpc.ssl_channel_credentials(pem.encode())
        channels: list[Any] = [
            grpc.aio.secure_channel(
                f"127.0.0.1:{port}",
                credentials,
                [*OPTIONS, ("grpc.channel_id", n), ("grpc.ssl_target_name_override", "istiod.istio-system.svc")],
            )
            for n in range(connections)
        ]
        metadata = (("authorization", f"Bearer {token}"),)
        calls = (
            channels[n % connections].unary_unary(f"/{CA_SERVICE}/CreateCertificate")(
                message, metadata=metadata, timeout=5
            )
            for n in range(count)
        )

        async def finish(call: Any) -> None:
            await call

        await asyncio.gather(*map(finish, calls), return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in channels))

    return Input(dict(c.genes), count * (len(message) + len(token)), attack)


CALLERS: dict[tuple[str, str], Callable[[Choices], Input]] = {
    ("15010", "node metadata"): node_metadata,
    ("15010", "subscriptions"): subscriptions,
    ("15010", "silent streams"): silent_streams,
    ("15012", "junk tokens"): junk_tokens,
    ("all ports", "silent connections"): silent_connections,
    ("HTTP ports", "slow bodies"): slow_bodies,
    ("HTTP ports", "requests"): requests,
}
"""Families of callers, by entrance and kind."""
