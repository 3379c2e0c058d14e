"""An in-process control plane with a TLS port, a certificate authority and token keys."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import pathlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import grpc
import pytest
from cryptography import x509

from ca.csr import decode_csr
from ca.pem import bundle_pem, certificate_pem, key_pem
from ca.signer import Signer
from pilot.bootstrap import ControlPlane
from pilot.settings.parse import load
from testing.clients.secure_client import ClientCertificate, create_certificate, secure_channel
from testing.mesh.clock import VirtualClock
from testing.security.certificates import DAY, csr, ec_key
from testing.security.tokens import write_keys

ADDRESSES = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")
WEB = "spiffe://cluster.local/ns/shop/sa/web"


class Running(NamedTuple):
    """A running control plane."""

    plane: ControlPlane

    @property
    def port(self) -> int:
        return self.plane.ports["secure xDS"].number

    @property
    def signer(self) -> Signer:
        assert self.plane.security.authority is not None
        assert self.plane.security.authority.authority is not None
        return self.plane.security.authority.authority.signer

    @property
    def root(self) -> bytes:
        return self.signer.roots_pem

    async def until(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not check():
                await asyncio.sleep(0.005)

    def plain_channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.plane.ports['xDS'].number}")

    def metrics(self) -> list[str]:
        return self.plane.metrics.exposition().decode().splitlines()

    def client_certificate(
        self, identity: str = WEB, *more: str, now: datetime.datetime | None = None
    ) -> ClientCertificate:
        """Return a certificate with any identity, issued by the control plane's authority."""
        return issue(self.signer, identity, *more, now=now)


def issue(signer: Signer, *identities: str, now: datetime.datetime | None = None) -> ClientCertificate:
    """Return a certificate issued by a signer."""
    leaf = signer.issue(decode_csr(csr(ec_key(51))), identities, DAY, now or datetime.datetime.now(datetime.UTC))
    return ClientCertificate(certificate_pem(leaf) + bundle_pem(signer.intermediates), key_pem(ec_key(51)))


@contextlib.asynccontextmanager
async def running(folder: pathlib.Path, environ: dict[str, str] | None = None, **flags: str) -> AsyncIterator[Running]:
    config = folder / "config"
    config.mkdir(exist_ok=True)
    keys = write_keys(folder / "keys.json")
    arguments = {"configDir": str(config), "tokenKeys": str(keys), **dict.fromkeys(ADDRESSES, "127.0.0.1:0"), **flags}
    words = ["--ctrlz_port=0", *(f"--{name.replace('_', '-')}={value}" for name, value in arguments.items())]
    plane = ControlPlane(load(words, environ or {}).settings, VirtualClock())
    task = asyncio.create_task(plane.run())
    try:
        async with asyncio.timeout(30):
            while not (plane.ready or task.done()):
                await asyncio.sleep(0.005)
        yield Running(plane)
    finally:
        plane.end()
        async with asyncio.timeout(30):
            await task


class Plain(NamedTuple):
    """A plaintext port."""

    port: int


async def denial(
    plane: Running, token: str = "", certificate: ClientCertificate | None = None, **options: Any
) -> tuple[grpc.StatusCode, str]:
    """Return the status with which a certificate request is rejected."""
    async with secure_channel(plane.port, plane.root, certificate) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await create_certificate(channel, token, **options)
    return caught.value.code(), caught.value.details() or ""


async def served_certificate(port: int) -> x509.Certificate:
    """Return the certificate served to clients without a certificate. The connection negotiates h2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    tls = writer.get_extra_info("ssl_object")
    assert tls.selected_alpn_protocol() == "h2"
    writer.close()
    del reader
    return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True))
