"""Clients of the port with TLS: a workload that gets its certificate with a token, and asks for configuration with either."""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from ca.pem import key_pem
from ca.service import SERVICE as CA_SERVICE
from pilot.xds.ads import SERVICE as ADS_SERVICE
from protos import ca_pb2
from testing.clients.ads import OPTIONS, Client
from testing.security.certificates import csr, ec_key

NAME = "istiod.istio-system.svc"
WEB = "sidecar~10.0.0.7~web-1.shop~shop.svc.cluster.local"


class Shown(NamedTuple):
    """A certificate that a client shows: its chain and its key, in PEM."""

    chain: bytes
    key: bytes


def secure_channel(port: int, root: bytes, shown: Shown | None = None, name: str = NAME) -> Any:
    credentials = grpc.ssl_channel_credentials(root, shown.key if shown else None, shown.chain if shown else None)
    return grpc.aio.secure_channel(
        f"127.0.0.1:{port}", credentials, [*OPTIONS, ("grpc.ssl_target_name_override", name)]
    )


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


async def create_certificate(
    channel: Any,
    token: str = "",
    request: bytes | None = None,
    seconds: int = 3600,
    key: Any = None,
    names: tuple[str, ...] = (),
    forwarded: str = "",
    instead_of: str = "",
) -> list[str]:
    """The chain that the authority answers with. `forwarded` is what a gateway says of the certificate that it has seen, `instead_of` the identity
    that the certificate is wanted for where it is not that of who asks."""
    asked = ca_pb2.IstioCertificateRequest(csr=(request or csr(key, names)).decode(), validity_duration=seconds)
    if instead_of:
        asked.metadata["ImpersonatedIdentity"] = instead_of
    call: Any = channel.unary_unary(f"/{CA_SERVICE}/CreateCertificate")
    told = (("x-forwarded-client-cert", forwarded),) if forwarded else ()
    answer = await call(asked.SerializeToString(), metadata=(*bearer(token), *told), timeout=10)
    return list(ca_pb2.IstioCertificateResponse.FromString(answer).cert_chain)


async def enroll(port: int, root: bytes, token: str) -> Shown:
    """What a workload shows from now on, once it has proved by its token who it is."""
    key = ec_key(50)
    async with secure_channel(port, root) as channel:
        chain = await create_certificate(channel, token, key=key)
    return Shown("".join(chain[:-1]).encode(), key_pem(key))


def uris(certificate: str) -> list[str]:
    names = (
        x509.load_pem_x509_certificate(certificate.encode())
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    return names.get_values_for_type(x509.UniformResourceIdentifier)


class SecureClient(Client):
    """A stream of xDS over TLS."""

    def __init__(
        self,
        port: int,
        root: bytes,
        shown: Shown | None = None,
        token: str = "",
        variant: str = "delta",
        node_id: str = WEB,
        **metadata: Any,
    ) -> None:
        self.delta, self.node_id, self.metadata, self.first = variant == "delta", node_id, metadata, True
        self.channel = secure_channel(port, root, shown)
        method = "DeltaAggregatedResources" if self.delta else "StreamAggregatedResources"
        self.call = self.channel.stream_stream(f"/{ADS_SERVICE}/{method}")(metadata=bearer(token))


def root_of(pem_or_signer: Any) -> bytes:
    """The roots of a signer in PEM."""
    made: bytes = pem_or_signer.certificate.public_bytes(serialization.Encoding.PEM)
    return made
