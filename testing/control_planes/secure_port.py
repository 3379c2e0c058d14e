"""The TLS port of a control plane as an agent sees it: the certificate service, and an ADS service that tests
implement.

A caller's token is its SPIFFE identity.
"""

from __future__ import annotations

import asyncio
import datetime
import pathlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from cryptography import x509
from grpc import aio

from ca.authority import Authority
from ca.csr import SigningRequest
from ca.pem import bundle_pem, key_pem
from ca.service import CallerRefused, CertificateService
from ca.signer import Signer
from pilot.lib.metrics.metrics import Metrics
from testing.security.certificates import ec_key

NAME = "istiod.istio-system.svc"
ADS = "envoy.service.discovery.v3.AggregatedDiscoveryService"
METHODS = ("StreamAggregatedResources", "DeltaAggregatedResources")
Stream = Callable[[Any], Awaitable[None]]
"""Serves one ADS stream, given its gRPC context."""


class CertificateCounts:
    """Counts signed and rejected certificate requests."""

    def __init__(self) -> None:
        self.signed = self.refused = 0
        self.calls = Metrics().calls

    def csr_received(self) -> None:
        """Received requests are not counted."""

    def csr_failed(self, code: str) -> None:
        self.refused += 1

    def csr_unauthenticated(self) -> None:
        self.refused += 1

    def csr_signed(self) -> None:
        self.signed += 1


async def token_of(context: Any) -> list[str]:
    """Return the identity in a caller's token. Raise CallerRefused if there is none."""
    for name, value in context.invocation_metadata():
        if name == "authorization" and value.startswith("Bearer spiffe://"):
            return [value.removeprefix("Bearer ")]
    raise CallerRefused("no token")


async def no_streams(context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "ADS is not served")


class SecurePort:
    """A TLS port. `stream` serves ADS, `address` is set by `start`, and `root` verifies the port."""

    def __init__(
        self, signer: Signer, stream: Stream = no_streams, lifetime: datetime.timedelta = datetime.timedelta(hours=1)
    ) -> None:
        self.authority = Authority(signer, lifetime, datetime.timedelta(days=90))
        self.counts, self.stream, self.address = CertificateCounts(), stream, ""
        self.metadata: list[dict[str, str]] = []
        self._server: aio.Server | None = None

    async def start(self, host: str = "127.0.0.1") -> None:
        server = self._server = aio.server()
        handlers = {method: grpc.stream_stream_rpc_method_handler(self._serve) for method in METHODS}
        certificates = CertificateService(self.authority.answer, token_of, self.counts).handlers()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(ADS, handlers), certificates))
        port = server.add_secure_port(
            f"{host}:0", grpc.ssl_server_credentials([serving_certificate(self.authority.signer)])
        )
        await server.start()
        self.address = f"{host}:{port}"

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    def write_root(self, folder: pathlib.Path) -> pathlib.Path:
        """Write the root certificates to a folder, and return the path."""
        path = folder / "root-cert.pem"
        path.write_bytes(self.authority.signer.roots_pem)
        return path

    async def _serve(self, _: Any, context: Any) -> None:
        self.metadata.append(dict(context.invocation_metadata()))
        await self.stream(context)


def serving_certificate(signer: Signer) -> tuple[bytes, bytes]:
    """Return the private key and the chain of the control plane's serving certificate."""
    key = ec_key(900)
    now = datetime.datetime.now(datetime.UTC)
    leaf = signer.issue(SigningRequest(key.public_key(), False), [NAME], datetime.timedelta(days=1), now)
    chain: tuple[x509.Certificate, ...] = (leaf, *signer.intermediates)
    return key_pem(key), bundle_pem(chain)


async def until(check: Callable[[], Any], seconds: float = 20) -> Any:
    """Return the first true result of `check`, called repeatedly. Raise TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not (result := check()):
            await asyncio.sleep(0.01)
        return result
