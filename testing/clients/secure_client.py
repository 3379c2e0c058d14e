"""Clients of the TLS port: certificate requests with a token, and xDS streams with a token or a certificate."""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc
from cryptography import x509

from ca.pem import key_pem
from ca.service import SERVICE as CA_SERVICE
from pilot.xds.ads import SERVICE as ADS_SERVICE
from protos import ca_pb2
from testing.clients.ads import OPTIONS, Client
from testing.security.certificates import csr, ec_key

NAME = "istiod.istio-system.svc"
WEB = "sidecar~10.0.0.7~web-1.shop~shop.svc.cluster.local"


class ClientCertificate(NamedTuple):
    """A client certificate chain and its key, in PEM."""

    chain: bytes
    key: bytes


def secure_channel(port: int, root: bytes, certificate: ClientCertificate | None = None, name: str = NAME) -> Any:
    credentials = grpc.ssl_channel_credentials(
        root, certificate.key if certificate else None, certificate.chain if certificate else None
    )
    return grpc.aio.secure_channel(
        f"127.0.0.1:{port}", credentials, [*OPTIONS, ("grpc.ssl_target_name_override", name)]
    )


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


async def create_certificate(
    channel: Any,
    token: str = "",
    csr_pem: bytes | None = None,
    seconds: int = 3600,
    key: Any = None,
    names: tuple[str, ...] = (),
    forwarded: str = "",
    impersonate: str = "",
) -> list[str]:
    """Return the chain that the authority issues.

    `forwarded` is the X-Forwarded-Client-Cert header of a gateway. `impersonate` is the requested identity if it
    differs from the caller's.
    """
    message = ca_pb2.IstioCertificateRequest(csr=(csr_pem or csr(key, names)).decode(), validity_duration=seconds)
    if impersonate:
        message.metadata["ImpersonatedIdentity"] = impersonate
    call: Any = channel.unary_unary(f"/{CA_SERVICE}/CreateCertificate")
    headers = (("x-forwarded-client-cert", forwarded),) if forwarded else ()
    response = await call(message.SerializeToString(), metadata=(*bearer(token), *headers), timeout=10)
    return list(ca_pb2.IstioCertificateResponse.FromString(response).cert_chain)


async def enroll(port: int, root: bytes, token: str) -> ClientCertificate:
    """Return a certificate obtained with a token, as a workload gets it."""
    key = ec_key(50)
    async with secure_channel(port, root) as channel:
        chain = await create_certificate(channel, token, key=key)
    return ClientCertificate("".join(chain[:-1]).encode(), key_pem(key))


def uris(certificate: str) -> list[str]:
    """Return the URIs in a certificate."""
    names = (
        x509.load_pem_x509_certificate(certificate.encode())
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    return names.get_values_for_type(x509.UniformResourceIdentifier)


class SecureClient(Client):
    """An xDS stream over TLS."""

    def __init__(
        self,
        port: int,
        root: bytes,
        certificate: ClientCertificate | None = None,
        token: str = "",
        variant: str = "delta",
        node_id: str = WEB,
        **metadata: Any,
    ) -> None:
        self.delta, self.node_id, self.metadata, self.first = variant == "delta", node_id, metadata, True
        self.channel = secure_channel(port, root, certificate)
        method = "DeltaAggregatedResources" if self.delta else "StreamAggregatedResources"
        self.call = self.channel.stream_stream(f"/{ADS_SERVICE}/{method}")(metadata=bearer(token))
