"""A client of the certificate authority."""

from __future__ import annotations

import asyncio

import grpc

from pilot.agent.agent_settings import CertificateSettings
from pilot.agent.certificates.workload_certificate import (
    WorkloadCertificate,
    build_csr,
    generate_key,
    key_pem,
    load_certificate,
)
from pilot.agent.upstream_server import UpstreamConfigError, UpstreamServer
from protos import ca_pb2

METHOD = "/istio.v1.auth.IstioCertificateService/CreateCertificate"
TIMEOUT_SECONDS = 10.0


class CaClientError(Exception):
    """A request for a certificate failed. The message is for the log."""


async def fetch_certificate(
    upstream: UpstreamServer, settings: CertificateSettings, identity: str, extra_roots: bytes = b""
) -> WorkloadCertificate:
    """Return a certificate for a new key. Its roots are those of the authority, followed by `extra_roots`.

    Raises CaClientError.
    """
    key = await asyncio.to_thread(generate_key, settings)
    request = ca_pb2.IstioCertificateRequest(
        csr=build_csr(key, identity).decode(), validity_duration=round(settings.ttl.seconds)
    )
    if settings.signer:
        request.metadata.fields["CertSigner"].string_value = settings.signer
    certificates = await _call(upstream, request.SerializeToString())
    if len(certificates) < 2:
        raise CaClientError(
            f"the certificate authority {upstream.address} returned {len(certificates)} certificates; "
            "expected a leaf and its roots"
        )
    *chain, roots = (part if part.endswith("\n") else f"{part}\n" for part in certificates)
    try:
        return load_certificate("".join(chain).encode(), key_pem(key, settings.pkcs8), roots.encode() + extra_roots)
    except ValueError as error:
        raise CaClientError(
            f"the certificate authority {upstream.address} returned an invalid certificate: {error}"
        ) from error


async def _call(upstream: UpstreamServer, request: bytes) -> list[str]:
    try:
        async with upstream.channel() as channel:
            call = channel.unary_unary(METHOD)
            response: bytes = await call(request, metadata=upstream.metadata(), timeout=TIMEOUT_SECONDS)
        return list(ca_pb2.IstioCertificateResponse.FromString(response).cert_chain)
    except UpstreamConfigError as error:
        raise CaClientError(str(error)) from error
    except grpc.aio.AioRpcError as error:
        reason = f"{error.code().name}: {upstream.explain(error.details())}"
        raise CaClientError(f"the certificate authority {upstream.address} returned {reason}") from error
    except ValueError as error:  # invalid PEM in the file of roots
        raise CaClientError(f"cannot connect to the certificate authority {upstream.address}: {error}") from error
