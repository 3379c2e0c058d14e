"""A control plane's port with TLS, as an agent meets it: the certificate service of `ca`, and ADS that a test answers.

A caller's token is its SPIFFE identity, so that tests say who asks without a cluster.
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
from pilot.lib.metrics import Metrics
from testing.security.certificates import ec_key

NAME = "istiod.istio-system.svc"
ADS = "envoy.service.discovery.v3.AggregatedDiscoveryService"
METHODS = ("StreamAggregatedResources", "DeltaAggregatedResources")
Stream = Callable[[Any], Awaitable[None]]
"""Serves one stream of ADS: takes its gRPC context."""


class Counted:
    """Counts what the certificate service says."""

    def __init__(self) -> None:
        self.signed = self.refused = 0
        self.calls = Metrics().calls

    def csr_received(self) -> None:
        """Nobody asks."""

    def csr_failed(self, code: str) -> None:
        self.refused += 1

    def csr_unauthenticated(self) -> None:
        self.refused += 1

    def csr_signed(self) -> None:
        self.signed += 1


async def token_of(context: Any) -> list[str]:
    """Return the identity that a caller's token says; Refused without one."""
    for name, value in context.invocation_metadata():
        if name == "authorization" and value.startswith("Bearer spiffe://"):
            return [value.removeprefix("Bearer ")]
    raise CallerRefused("no token")


async def no_streams(context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "no configuration here")


class SecureFront:
    """`stream` serves ADS. `address` and `counted` are there after `start`; `root` is what clients verify it with."""

    def __init__(
        self, signer: Signer, stream: Stream = no_streams, life: datetime.timedelta = datetime.timedelta(hours=1)
    ) -> None:
        self.authority = Authority(signer, life, datetime.timedelta(days=90))
        self.counted, self.stream, self.address = Counted(), stream, ""
        self.metadata: list[dict[str, str]] = []
        self._server: aio.Server | None = None

    async def start(self, host: str = "127.0.0.1") -> None:
        server = self._server = aio.server()
        handlers = {method: grpc.stream_stream_rpc_method_handler(self._serve) for method in METHODS}
        certificates = CertificateService(self.authority.answer, token_of, self.counted).handlers()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(ADS, handlers), certificates))
        port = server.add_secure_port(
            f"{host}:0", grpc.ssl_server_credentials([own_certificate(self.authority.signer)])
        )
        await server.start()
        self.address = f"{host}:{port}"

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    def write_root(self, folder: pathlib.Path) -> pathlib.Path:
        """Return the file of roots that it wrote."""
        path = folder / "root-cert.pem"
        path.write_bytes(self.authority.signer.roots_pem)
        return path

    async def _serve(self, _: Any, context: Any) -> None:
        self.metadata.append(dict(context.invocation_metadata()))
        await self.stream(context)


def own_certificate(signer: Signer) -> tuple[bytes, bytes]:
    """Return the private key and the chain of the control plane itself."""
    key = ec_key(900)
    now = datetime.datetime.now(datetime.UTC)
    leaf = signer.issue(SigningRequest(key.public_key(), False), [NAME], datetime.timedelta(days=1), now)
    chain: tuple[x509.Certificate, ...] = (leaf, *signer.intermediates)
    return key_pem(key), bundle_pem(chain)


async def until(check: Callable[[], Any], seconds: float = 20) -> Any:
    """Return the first true result of `check`, which is asked after each turn of the event loop; AssertionError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not (found := check()):
            await asyncio.sleep(0.01)
        return found
