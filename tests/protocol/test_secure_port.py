"""The port with TLS of a whole control plane: certificates for tokens, configuration for both, nothing for anybody else."""
from __future__ import annotations

import asyncio
import contextlib
import datetime
import pathlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import grpc
import pytest

from ca.pem import bundle_pem, certificate_pem, key_pem
from ca.signer import Signer
from pilot.app import ControlPlane
from pilot.settings.parse import load
from tests.support.certificates import DAY, csr, ec_key
from tests.support.clock import VirtualClock
from tests.support.secure import SecureClient, Shown, create_certificate, enroll, secure_channel, uris
from tests.support.tokens import token, write_keys

ADDRESSES = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr")
WEB = "spiffe://cluster.local/ns/shop/sa/web"
BOTH = pytest.mark.parametrize("variant", ["sotw", "delta"])


class Running(NamedTuple):
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

    def shown(self, identity: str = WEB, *more: str, now: datetime.datetime | None = None) -> Shown:
        """A certificate that our own authority has issued, whatever it says."""
        return issue(self.signer, identity, *more, now=now)


def issue(signer: Signer, *identities: str, now: datetime.datetime | None = None) -> Shown:
    from ca.csr import decode_csr

    leaf = signer.issue(decode_csr(csr(ec_key(51))), identities, DAY, now or datetime.datetime.now(datetime.UTC))
    return Shown(certificate_pem(leaf) + bundle_pem(signer.intermediates), key_pem(ec_key(51)))


@contextlib.asynccontextmanager
async def running(folder: pathlib.Path, environ: dict[str, str] | None = None, **flags: str) -> AsyncIterator[Running]:
    config = folder / "config"
    config.mkdir(exist_ok=True)
    keys = write_keys(folder / "keys.json")
    given = {"configDir": str(config), "tokenKeys": str(keys), **dict.fromkeys(ADDRESSES, "127.0.0.1:0"), **flags}
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    plane = ControlPlane(load(arguments, environ or {}).settings, VirtualClock())
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


@BOTH
async def test_a_workload_gets_its_certificate_for_a_token_and_configuration_for_the_certificate(tmp_path: pathlib.Path, variant: str) -> None:
    async with running(tmp_path) as it:
        shown = await enroll(it.port, it.root, token("shop", "web"))
        assert uris(shown.chain.decode()) == [WEB]
        async with SecureClient(it.port, it.root, shown, variant=variant, SERVICE_ACCOUNT="web") as client:
            await client.ask("cds")
            assert (await client.take()).resources
            [connection] = it.plane.discovery.connections()
            assert (connection.proxy.identity, connection.address.startswith("127.0.0.1:")) == (WEB, True)


async def test_a_token_alone_is_enough_for_configuration(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as it, SecureClient(it.port, it.root, token=token("shop", "web")) as client:
        await client.ask("cds")
        assert (await client.take()).resources
        assert [connection.proxy.identity for connection in it.plane.discovery.connections()] == [WEB]


async def test_who_proves_nothing_is_refused(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as it:
        async with SecureClient(it.port, it.root) as client:
            assert await client.refused() == (grpc.StatusCode.UNAUTHENTICATED, "authentication failure")
        async with secure_channel(it.port, it.root) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await create_certificate(channel)
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAUTHENTICATED, "request authenticate failure")
