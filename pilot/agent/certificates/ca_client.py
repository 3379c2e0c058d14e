"""The certificate authority as a client sees it: one call, a certificate or a reason."""

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
SECONDS = 10.0
"""Time that an authority has to answer."""


class CertificateRequestError(Exception):
    """There is no certificate this time; the text is for the log."""


async def fetch_certificate(
    upstream: UpstreamServer, settings: CertificateSettings, identity: str, more_roots: bytes = b""
) -> WorkloadCertificate:
    """Returns a certificate for a new key, with `more_roots` behind those of the authority. CertificateRequestError where there is none this time."""
    key = await asyncio.to_thread(generate_key, settings)
    request = ca_pb2.IstioCertificateRequest(
        csr=build_csr(key, identity).decode(), validity_duration=round(settings.life.seconds)
    )
    if settings.signer:
        request.metadata.fields["CertSigner"].string_value = settings.signer
    chain = await _call(upstream, request.SerializeToString())
    if len(chain) < 2:
        raise CertificateRequestError(
            f"the authority at {upstream.address} answered {len(chain)} certificates where a leaf and its roots were expected"
        )
    *own, roots = (part if part.endswith("\n") else f"{part}\n" for part in chain)
    try:
        return load_certificate("".join(own).encode(), key_pem(key, settings.pkcs8), roots.encode() + more_roots)
    except ValueError as error:
        raise CertificateRequestError(
            f"the authority at {upstream.address} answered what is no certificate: {error}"
        ) from error


async def _call(upstream: UpstreamServer, request: bytes) -> list[str]:
    try:
        async with upstream.channel() as channel:
            call = channel.unary_unary(METHOD)
            answer: bytes = await call(request, metadata=upstream.metadata(), timeout=SECONDS)
        return list(ca_pb2.IstioCertificateResponse.FromString(answer).cert_chain)
    except UpstreamConfigError as error:
        raise CertificateRequestError(str(error)) from error
    except grpc.aio.AioRpcError as error:
        raise CertificateRequestError(
            f"the authority at {upstream.address} refuses: {error.code().name}: {error.details()}"
        ) from error
    except ValueError as error:  # roots that are no PEM
        raise CertificateRequestError(f"the authority at {upstream.address} cannot be asked: {error}") from error
