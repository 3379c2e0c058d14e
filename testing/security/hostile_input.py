"""Malformed input of unauthenticated peers, and the code that processes it."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from envoy.service.discovery.v3 import discovery_pb2

from ca.authority import Authority
from ca.service import CertificateService
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.tokens.jwks import parse_jwks
from pilot.lib.tokens.jwt import TokenError, verify_token
from pilot.lib.xds_types import CLUSTER
from pilot.xds.ads import EOF
from pilot.xds.authn.identity import IdentityError
from pilot.xds.authn.service_account import service_account_identity
from protos import ca_pb2
from testing.clients.ads import NODE, Server
from testing.security.certificates import DAY, IDENTITY, NOW, csr, ec_key, request_pem, root, rsa_key
from testing.security.tokens import base64url, claims, jwk, other_key, sign

Target = Callable[[bytes], None]


class Aborted(Exception):
    """The call ended with a status."""


class Call:
    """A gRPC call whose peer sends some messages and disconnects."""

    def __init__(self, *messages: bytes) -> None:
        self._messages, self.status = list(messages), grpc.StatusCode.OK

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5000"

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        return ()

    async def read(self) -> Any:
        return self._messages.pop(0) if self._messages else EOF

    async def write(self, message: bytes) -> None:
        assert message

    async def abort(self, status: grpc.StatusCode, details: str = "") -> None:
        self.status = status
        raise Aborted(details)

    def code(self) -> grpc.StatusCode:
        return self.status

    def cancelled(self) -> bool:
        return False


class Targets:
    """The code under test. A target returns if it handles an input, and raises if it does not."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._keys = parse_jwks(json.dumps({"keys": [jwk(rsa_key()), jwk(ec_key(), "two")]}).encode())

        async def authenticate(_: Any) -> Sequence[str]:
            return (IDENTITY,)

        authority = Authority(root(), DAY, 90 * DAY, lambda: NOW)
        self._certificates = CertificateService(authority.answer, authenticate, Metrics())
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(self._make_server())

    async def _make_server(self) -> Server:
        return Server()

    def close(self) -> None:
        self._loop.close()

    def certificate_request(self, data: bytes) -> None:
        """Process the body of a CreateCertificate call."""
        call = Call()
        try:
            response = self._loop.run_until_complete(self._certificates._create(data, call))
            chain = ca_pb2.IstioCertificateResponse.FromString(response).cert_chain
            assert len(chain) == 2
        except Aborted:
            assert call.status is grpc.StatusCode.INVALID_ARGUMENT, call.status

    def first_request(self, data: bytes) -> None:
        """Process the first request of a stream, in both variants."""
        for method in (self._server.ads._sotw, self._server.ads._delta):
            call = Call(data)
            try:
                self._loop.run_until_complete(method(None, call))
            except Aborted:
                assert call.status in EXPECTED, call.status
        assert not self._server.discovery.connections()
        self._server.discovery.sweep()
        assert not len(self._server.db.proxies)

    def token(self, data: bytes) -> None:
        """Process a caller's token."""
        try:
            claims = verify_token(data.decode("latin-1"), self._keys, NOW.timestamp())
            service_account_identity(str(claims.get("sub")), "cluster.local")
        except (TokenError, IdentityError):
            return


EXPECTED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.UNAUTHENTICATED,
}


def certificate_requests() -> Sequence[bytes]:
    """Return valid and nearly valid requests."""
    messages = []
    for pem in (
        csr(),
        csr(rsa_key(), (IDENTITY, "spiffe://other/ns/a/sa/b"), "name"),
        request_pem(b"\x30\x03\x02\x01\x00"),
        b"nonsense",
    ):
        request = ca_pb2.IstioCertificateRequest(csr=pem.decode(), validity_duration=60)
        messages.append(request.SerializeToString())
        request.metadata.update({"CertSigner": "", "ImpersonatedIdentity": "", "more": [1, {"a": None}]})
        messages.append(request.SerializeToString())
    return messages


def first_requests() -> Sequence[bytes]:
    """Return valid and nearly valid first requests of streams."""
    messages = []
    for kind in (discovery_pb2.DiscoveryRequest, discovery_pb2.DeltaDiscoveryRequest):
        request: Any = kind(type_url=CLUSTER, response_nonce="n")
        request.node.id = NODE
        request.node.locality.region = "r"
        request.node.metadata.update(
            {
                "NAMESPACE": "ns",
                "LABELS": {"a": "b"},
                "INSTANCE_IPS": "10.0.0.1,::1",
                "CLUSTER_ID": "alias",
                "X": [1, None],
            }
        )
        messages.append(request.SerializeToString())
        request.type_url = "istio.io/debug"
        messages.append(request.SerializeToString())
        request.node.id = "ztunnel~x~~"
        request.error_detail.message = "no"
        messages.append(request.SerializeToString())
    return messages


def tokens() -> Sequence[bytes]:
    """Return valid and nearly valid tokens."""
    odd = {"exp": 1e300, "nbf": -1, "aud": [], "sub": "system:serviceaccount:a:b"}
    valid = [sign(claims()), sign(odd), sign(claims(), ec_key(), kid="two"), sign(claims(), kid=None)]
    return [text.encode() for text in (*valid, sign(claims(), other_key()), sign([], alg="none"))]


CORPUS: dict[str, Callable[[], Sequence[bytes]]] = {
    "certificate_request": certificate_requests,
    "first_request": first_requests,
    "token": tokens,
}


def corrupt(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return an input of the corpus with random damage, sometimes inside encoded parts, or random bytes."""
    if rng.random() < 0.03:
        return rng.randbytes(rng.randrange(200))
    data = bytearray(rng.choice(corpus))
    if rng.random() < 0.3:
        return _corrupt_inner(rng, bytes(data))
    for _ in range(rng.randrange(1, 5)):
        _damage(rng, data, corpus)
    return bytes(data)


def _damage(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(6):
        case 0 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 1 if at < len(data):
            data[at] = rng.choice((0, 1, 0x2E, 0x7F, 0x80, 0xFF))
        case 2:
            del data[at : at + rng.randrange(20)]
        case 3:
            data[at:at] = rng.randbytes(rng.randrange(20))
        case 4:
            data[at:at] = data[at : at + rng.randrange(60)] * rng.randrange(4)
        case _:
            other = rng.choice(corpus)
            data[at:] = other[rng.randrange(len(other)) :]


def _corrupt_inner(rng: random.Random, data: bytes) -> bytes:
    """Damage a part of a token, or the DER of a request, and encode it again."""
    if data.count(b".") == 2 and b"\n" not in data:
        parts = data.split(b".")
        index = rng.randrange(3)
        inner = bytearray(base64.urlsafe_b64decode(parts[index] + b"=="))
        _damage(rng, inner, [bytes(inner), b'{"a":[[[]]]}'])
        parts[index] = base64url(bytes(inner)).encode()
        return b".".join(parts)
    try:
        request = ca_pb2.IstioCertificateRequest.FromString(data)
        inner = bytearray(base64.b64decode("".join(request.csr.splitlines()[1:-1])))
        _damage(rng, inner, [bytes(inner)])
        request.csr = request_pem(bytes(inner)).decode()
        return request.SerializeToString()
    except Exception:  # another kind of input
        damaged = bytearray(data)
        _damage(rng, damaged, [data])
        return bytes(damaged)
