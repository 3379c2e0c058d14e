"""Hostile callers of the ports: what they send, and how they send it to a running control plane."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import grpc
from envoy.service.discovery.v3 import discovery_pb2

from ca.service import SERVICE as CA_SERVICE
from pilot.lib.xds_types import BY_SHORT_NAME, DEBUG
from pilot.xds.ads import SERVICE
from protos import ca_pb2
from testing.clients.ads import OPTIONS
from testing.clients.secure_client import NAME
from testing.hostile.search import Choices
from testing.security.certificates import csr, request_pem
from testing.security.der import element, integer, rsa_public_key
from testing.security.tokens import base64url, token

HOLD_SECONDS = 0.7
"""Number of seconds for which callers hold their connections."""
CONNECTIONS = 4
"""Number of HTTP/2 connections that streams and calls share."""
TYPES = ("cds", "eds", "lds", "rds", "nds", "sds", "ecds")
TOKEN = token("hostile", "default")
UNVERIFIED = ssl.create_default_context()
UNVERIFIED.check_hostname, UNVERIFIED.verify_mode = False, ssl.CERT_NONE


class Streams(NamedTuple):
    """Equal xDS streams. Each sends the messages and reads no responses."""

    method: str
    messages: Sequence[bytes]
    streams: int = 1

    @property
    def size(self) -> int:
        return self.streams * (100 + sum(map(len, self.messages)))


class Certificates(NamedTuple):
    """Equal calls that request certificates."""

    message: bytes
    headers: Sequence[tuple[str, str]]
    calls: int = 1

    @property
    def size(self) -> int:
        return self.calls * (100 + len(self.message) + sum(len(value) for _, value in self.headers))


class Requests(NamedTuple):
    """Equal HTTP/1.1 connections, which send the data and wait."""

    data: bytes
    connections: int = 1

    @property
    def size(self) -> int:
        return self.connections * (100 + len(self.data))


# -- xDS streams -------------------------------------------------------------------------------------------------------


def _streams(c: Choices, requests: Callable[[Any, int], None], most: int) -> Streams:
    """Return streams of requests. `requests` fills in the message with a number."""
    method = c.pick("method", ("StreamAggregatedResources", "DeltaAggregatedResources"))
    kind = discovery_pb2.DeltaDiscoveryRequest if method.startswith("D") else discovery_pb2.DiscoveryRequest
    messages = []
    for number in range(max(1, c.count("requests", 500))):
        request = kind()
        if not number:
            request.node.id = "sidecar~10.66.0.1~worst.hostile~hostile.svc.cluster.local"
            request.node.metadata.update({"NAMESPACE": "hostile"})
        requests(request, number)
        messages.append(request.SerializeToString())
    return Streams(method, messages, max(1, c.count("streams", most)))


def node_metadata(c: Choices) -> Streams:
    url = BY_SHORT_NAME[c.pick("type", TYPES)]
    role = c.pick("role", ("sidecar", "router", "waypoint", "ztunnel", "agent"))
    address = c.pick("address", ("10.{0}.{1}.{2}", "::{0:x}:{1:x}{2:x}", "{0}", "1.1.1.1"))
    addresses = [address.format(n >> 16 & 255, n >> 8 & 255, n & 255) for n in range(c.count("addresses", 50_000))]
    value = c.text("value", ("v", ".", "é", "{", "[", "1", "/", " ", "%2e", "=,"), 100_000)
    keys = (
        "LABELS", "ISTIO_VERSION", "CLUSTER_ID", "NETWORK", "INTERCEPTION_MODE", "ISTIO_PROXY_SHA", "PROXY_CONFIG",
        "WORKLOAD_NAME", "SERVICE_ACCOUNT", "OWNER", "HTTP10", "DNS_CAPTURE", "UNPRIVILEGED_POD", "STS_PORT", "X",
        "DISTRIBUTION", "GENERATOR", "IDLE_TIMEOUT", "MESH_ID", "TLS_SERVER_CERT_CHAIN", "PLATFORM_METADATA",
    )  # fmt: skip
    form = c.pick("form", ("text", "map", "list", "deep"))
    deep: Any = value
    match form:
        case "map":
            deep = {f"l{n}": value for n in range(c.count("entries", 10_000))}
        case "list":
            deep = [value] * c.count("entries", 10_000)
        case "deep":
            for _ in range(c.count("depth", 80)):
                deep = {"a": deep}
    key = c.pick("key", keys)
    name = "x" * c.count("name", 10_000)

    def fill(request: Any, number: int) -> None:
        request.type_url = url
        if not number:
            request.node.id = f"{role}~10.66.0.1~worst{name}.hostile~hostile.svc.cluster.local"
            request.node.metadata.update({"INSTANCE_IPS": ",".join(addresses), key: deep})

    return _streams(c, fill, 3000)


def subscriptions(c: Choices) -> Streams:
    urls = [BY_SHORT_NAME[c.pick("type", TYPES)], BY_SHORT_NAME[c.pick("other type", TYPES)]]
    shapes = (
        "outbound|80||h{}.hostile.svc.cluster.local", "{}", "kubernetes://s{}", "kubernetes-gateway://a/s{}", "|||{}",
        "inbound|{}||", "80{}", "outbound_.80_.v{}_.a.b", "file-cert:{}~b", "invalid://{}", "*", "{}.é",
    )  # fmt: skip
    shape = c.pick("shape", shapes)
    padding = c.pick("padding unit", ("x", "|", ".", "~", "/", "%")) * c.count("padding", 20_000)
    names = [shape.format(n) + padding for n in range(c.count("names", 50_000))]
    changes, ends = c.pick("changes", (False, True)), c.pick("error", (False, True))
    message = c.text("message", ("a", "\n", "'", "Error adding/updating ", "listener ", ": ", "é", "(s)"), 20_000)

    def fill(request: Any, number: int) -> None:
        request.type_url = urls[number % 2]
        mine = [f"{number}{name}" for name in names] if changes else names
        if hasattr(request, "resource_names"):
            request.resource_names.extend(mine)
        elif number % 4 < 2:
            request.resource_names_subscribe.extend(mine)
        else:
            request.resource_names_unsubscribe.extend(mine)
        if number and ends:
            request.error_detail.message, request.response_nonce = message, "n"

    return _streams(c, fill, 1000)


def debug_requests(c: Choices) -> Streams:
    url = c.pick("type", (DEBUG, f"{DEBUG}syncz", f"{DEBUG}config_dump", "networking.istio.io/v1/VirtualService"))
    pages = ("syncz", "config_dump?proxyID=", "edsz?proxyID=", "configz", "registryz", "clusterz", "nonsense", "a?b=")
    name = c.pick("page", pages) + c.text("query", ("a", "&a=", "%2e", "/", "%", "+", "=", ".", "é"), 20_000)
    names = [name] * c.count("names", 10_000)

    def fill(request: Any, number: int) -> None:
        request.type_url = url
        getattr(
            request, "resource_names_subscribe" if hasattr(request, "resource_names_subscribe") else "resource_names"
        ).extend(names)

    return _streams(c, fill, 300)


# -- calls that request certificates -----------------------------------------------------------------------------------


def _certificates(c: Choices, request: bytes, headers: Mapping[str, str], **metadata: Any) -> Certificates:
    message = ca_pb2.IstioCertificateRequest(csr=request.decode("latin-1"), validity_duration=60)
    message.metadata.update(metadata)
    return Certificates(message.SerializeToString(), tuple(headers.items()), max(1, c.count("calls", 2000)))


def tokens(c: Choices) -> Certificates:
    """Return calls with tokens that are wrong."""
    padding = c.text("claim", ("a", "\\u00e9", "system:serviceaccount:", ":", "9", "e9", "[", '{"a":', "."), 100_000)
    number = "9" * (1 + c.count("digits", 10_000))
    claims = c.pick(
        "claims",
        (
            f'{{"iss": "{padding}", "sub": "a"}}', f'{{"aud": {json.dumps([padding] * c.count("audiences", 5000))}}}',
            f'{{"exp": {number}}}', f'{{"exp": 1e{number}}}', f'{{"a": {padding}}}', padding,
            f'{{"sub": "{padding}", "exp": 99999999999, "aud": "istio-ca"}}',
        ),
    )  # fmt: skip
    header = c.pick(
        "header", ('{"alg": "RS256", "kid": "one"}', '{"alg": "none"}', f'{{"alg": "RS256", "kid": "{padding}"}}')
    )
    signature = c.text("signature", ("a", "-_", "=", "."), 50_000)
    text = ".".join((base64url(header.encode()), base64url(claims.encode()), signature))
    junk = c.text("junk", ("eyJhbGciOiJSUzI1NiJ9", ".", "e30", "a", "=", "-_"), 100_000)
    value = c.pick("token", (text, junk))
    return _certificates(c, csr(), {"authorization": f"Bearer {value}"})


def certificate_requests(c: Choices) -> Certificates:
    """Return calls of a workload that request certificates in strange ways."""
    form = c.pick("request", ("request", "attributes", "elements", "text", "blocks"))
    if form == "text":
        pieces = ("-----BEGIN CERTIFICATE REQUEST-----\n", "MIIB", "\n", "-----END", "-----", "é")
        request = c.text("text", pieces, 60_000).encode()
    elif form == "elements":
        request = request_pem(_elements(c))
    else:
        request = request_pem(_unsigned_request(c, _elements(c) if form == "attributes" else b""))
        if form == "blocks":
            request *= c.count("blocks", 50)
    name = c.pick("metadata", ("CertSigner", "ImpersonatedIdentity", "more"))
    metadata = {name: "spiffe://" + "a/" * c.count("metadata bytes", 20_000)}
    return _certificates(c, request, {"authorization": f"Bearer {TOKEN}"}, **metadata)


def _elements(c: Choices) -> bytes:
    tag = c.pick("tag", (0x02, 0x03, 0x04, 0x06, 0x0C, 0x13, 0x30, 0x31, 0xA0, 0x87))
    part = element(tag, b"\x01" * c.count("bytes", 30_000)) * max(1, c.count("parts", 10_000))
    for _ in range(c.count("depth", 100)):
        part = element(0x30, part)
    return part


def _unsigned_request(c: Choices, attributes: bytes) -> bytes:
    exponent = c.pick("e", (3, 65537, (1 << 2048) + 1))
    key = rsa_public_key((1 << (8 + c.count("bits", 60_000))) - 1, exponent)
    part = element(0x31, element(0x30, bytes.fromhex("0603550403"), element(0x0C, b"x" * 9)))
    name = element(0x30, part * c.count("names", 5000))
    info = element(0x30, integer(0), name, key, element(0xA0, attributes))
    algorithm = bytes.fromhex("300d06092a864886f70d01010b0500")
    return element(0x30, info, algorithm, element(0x03, b"\0" + b"\x01" * c.count("signature", 8000)))


def forwarded_certificates(c: Choices) -> Certificates:
    """Return calls that claim to come from a gateway that forwards certificates."""
    pieces = ('URI="', '"', "Subject=", "CN=a", "\\,", "+", "By=a;", ",", "=", "#04", "DNS=", " ", "\\\\", "URI=a;")
    value = c.text("header", pieces, 100_000)
    return _certificates(c, csr(), {"x-forwarded-client-cert": value, "clusterid": "a" * c.count("cluster", 10_000)})


# -- HTTP --------------------------------------------------------------------------------------------------------------

PAGES = (
    "/debug/configz", "/debug/syncz", "/debug/config_dump?proxyID=", "/debug/edsz?proxyID=", "/debug/registryz",
    "/metrics", "/debug/problemz", "/version", "/debug/adsz?push=", "/debug/explainz?proxyID=", "/inject/", "/validate",
    "/", "/dashboard", "/debug/pprof/", "/ready",
)  # fmt: skip


def pages(c: Choices) -> Requests:
    """Return complete requests, several on each connection."""
    query = c.text("query", ("&a=", "?a=", "%2e", "/", "%", ".", "+", "é", ";", "a", "[", "="), 8000)
    host = c.pick("host", ("localhost", "evil.example", "[::1", "a" * 200, "127.0.0.1:x", "xn--" + "a" * 50))
    line = c.text("header", ("a", ",", "=", ";", '"', "gzip,", "bytes=0-,", "\t", "q=1;"), 8000)
    name = c.pick(
        "header name",
        ("Accept-Encoding", "Cookie", "Origin", "Range", "X-A", "Authorization", "Accept", "If-None-Match"),
    )
    headers = f"{name}: {line}\r\n" * c.count("headers", 500)
    method = c.pick("method", ("GET", "POST", "HEAD", "OPTIONS", "TRACE", "X" * 20))
    text = f"{method} {c.pick('page', PAGES)}{query} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n"
    data = text.encode() * max(1, c.count("requests", 500))
    return Requests(data, max(1, c.count("connections", 900)))


def bodies(c: Choices) -> Requests:
    """Return requests with bodies, which are in small pieces or unfinished."""
    path = c.pick("page", ("/inject", "/validate", "/debug/syncz", "/ready", "/", "/debug/adsz?push=true"))
    kind = c.pick("type", ("application/json", "text/plain", "multipart/form-data; boundary=a"))
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    head += f"{c.pick('encoding', ('', 'Content-Encoding: gzip', 'Content-Encoding: deflate', 'Expect: 100-continue'))}\r\n".lstrip()
    piece = c.text("body", ("a", "[", '{"a":', "--a\r\n", "\x1f\x8b\x08", "\0", '"', "9"), 200_000)
    if c.pick("chunked", (False, True)):
        extension = ";" + "a" * c.count("extension", 2000)
        chunk = f"{len(piece.encode()):x}{extension}\r\n{piece}\r\n" if piece else f"1{extension}\r\na\r\n"
        body = chunk * max(1, c.count("chunks", 50_000)) + ("0\r\n\r\n" if c.pick("end", (True, False)) else "")
        text = head + "Transfer-Encoding: chunked\r\n\r\n" + body
    else:
        length = len(piece.encode()) + c.pick("missing", (0, 1, 900_000))
        text = f"{head}Content-Length: {length}\r\n\r\n{piece}"
    return Requests(text.encode() * max(1, c.count("requests", 500)), max(1, c.count("connections", 900)))


# -- sending -----------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """The ports of a control plane by flag, and the root of its certificates."""

    ports: Mapping[str, int]
    root: bytes

    def channels(self, secure: bool) -> list[Any]:
        credentials = grpc.ssl_channel_credentials(self.root)
        address = f"127.0.0.1:{self.ports['secureGRPCAddr' if secure else 'grpcAddr']}"
        channels = []
        for number in range(CONNECTIONS):
            options = [*OPTIONS, ("grpc.channel_id", number), ("grpc.ssl_target_name_override", NAME)]
            channel = (
                grpc.aio.secure_channel(address, credentials, options)
                if secure
                else grpc.aio.insecure_channel(address, options)
            )
            channels.append(channel)
        return channels


async def send_streams(value: Streams, target: Target, secure: bool) -> None:
    channels = target.channels(secure)
    headers = (("authorization", f"Bearer {TOKEN}"),) if secure else ()

    async def stream(channel: Any) -> None:
        call = channel.stream_stream(f"/{SERVICE}/{value.method}")(metadata=headers)
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            for message in value.messages:
                await call.write(message)
        await asyncio.sleep(HOLD_SECONDS)
        call.cancel()

    await asyncio.gather(*(stream(channels[n % CONNECTIONS]) for n in range(value.streams)), return_exceptions=True)
    await asyncio.gather(*(channel.close() for channel in channels))


async def send_certificates(value: Certificates, target: Target) -> None:
    channels = target.channels(secure=True)

    async def call(channel: Any) -> None:
        method = channel.unary_unary(f"/{CA_SERVICE}/CreateCertificate")
        await method(value.message, metadata=value.headers, timeout=5)

    await asyncio.gather(*(call(channels[n % CONNECTIONS]) for n in range(value.calls)), return_exceptions=True)
    await asyncio.gather(*(channel.close() for channel in channels))


async def send_bytes(data: bytes, connections: int, port: int, tls: ssl.SSLContext | None) -> None:
    """Send data on several connections, and hold them for a while."""

    async def connection() -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port, ssl=tls), 10)
            writer.write(data)
            await asyncio.sleep(HOLD_SECONDS)
            writer.transport.abort()
            del reader

    await asyncio.gather(*(connection() for _ in range(connections)))


OPENINGS = (b"", b"\x16\x03\x01\x40\x00\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /ready")
"""Beginnings of handshakes and requests, after which a connection stays silent."""
