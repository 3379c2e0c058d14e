"""The secure port rejects client certificates in the plugged-in revocation list."""

from __future__ import annotations

import asyncio
import datetime
import pathlib
from collections.abc import AsyncIterator

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from ca.signer import Signer
from pilot.lib.start_error import StartError
from pilot.xds.authn.identity import IdentityError
from pilot.xds.tls import front
from pilot.xds.tls.revocation import RevokedCertificates
from testing.clients.secure_client import ClientCertificate, create_certificate, secure_channel
from testing.control_planes.secure_plane import Running, issue, running
from testing.security.certificates import DAY, intermediate, root, write_plugged_in

NOW = datetime.datetime.now(datetime.UTC)
WEB, SHOP = "spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/shop/sa/shop"
ROOT = root(3, now=NOW - DAY)
SIGNER = intermediate(ROOT, 4, 1000 * DAY)


def leaf(pem: ClientCertificate) -> x509.Certificate:
    return x509.load_pem_x509_certificates(pem.chain)[0]


def crl(issuer: x509.Certificate, key: object, *revoked: x509.Certificate, days: int = 1) -> bytes:
    """Return a revocation list. With negative `days`, it is outdated."""
    builder = x509.CertificateRevocationListBuilder(issuer.subject, NOW - 9 * DAY, NOW + days * DAY)
    for certificate in revoked:
        entry = x509.RevokedCertificateBuilder(certificate.serial_number, NOW - 9 * DAY).build()
        builder = builder.add_revoked_certificate(entry)
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    return signed.public_bytes(serialization.Encoding.PEM)


def leaf_list(*revoked: ClientCertificate, days: int = 1) -> bytes:
    return crl(SIGNER.certificate, SIGNER.key, *map(leaf, revoked), days=days)


def plugged_in(folder: pathlib.Path, signer: Signer = SIGNER, revoked: bytes = b"") -> dict[str, str]:
    """Write a plugged-in signer with a revocation list, and return the settings that use it."""
    certificates = folder / "cacerts"
    certificates.mkdir()
    write_plugged_in(certificates, signer)
    if revoked:
        (certificates / "ca-crl.pem").write_bytes(revoked)
    return {"ROOT_CA_DIR": str(certificates)}


@pytest.fixture
async def plane(tmp_path: pathlib.Path) -> AsyncIterator[Running]:
    async with running(tmp_path, plugged_in(tmp_path)) as plane:
        yield plane


async def renew(plane: Running, certificate: ClientCertificate) -> list[str]:
    async with secure_channel(plane.port, plane.root, certificate) as channel:
        return await create_certificate(channel)


@pytest.mark.parametrize("days", [1, -1], ids=["current", "outdated"])
async def test_revoked_certificate_cannot_renew_itself(tmp_path: pathlib.Path, days: int) -> None:
    revoked, valid = issue(SIGNER, WEB), issue(SIGNER, SHOP)
    async with running(tmp_path, plugged_in(tmp_path, revoked=leaf_list(revoked, days=days))) as plane:
        assert await renew(plane, valid)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await renew(plane, revoked)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_certificates_of_a_revoked_intermediate_are_rejected(tmp_path: pathlib.Path) -> None:
    other = intermediate(ROOT, 5, 1000 * DAY)
    settings = plugged_in(tmp_path, revoked=crl(ROOT.certificate, ROOT.key, other.certificate))
    async with running(tmp_path, settings) as plane:
        assert await renew(plane, issue(SIGNER, WEB))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await renew(plane, issue(other, WEB))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_revocation_closes_open_connections(
    plane: Running, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "CHECKS_IN_A_SLICE", 1)
    revoked, valid = issue(SIGNER, WEB), issue(SIGNER, SHOP)
    async with (
        secure_channel(plane.port, plane.root, revoked) as closed,
        secure_channel(plane.port, plane.root, valid) as connection,
        secure_channel(plane.port, plane.root) as anonymous,
    ):
        assert await create_certificate(closed)
        assert await create_certificate(connection)
        await anonymous.channel_ready()
        (tmp_path / "cacerts" / "ca-crl.pem").write_bytes(leaf_list(revoked))
        async with asyncio.timeout(20):
            while closed.get_state() is grpc.ChannelConnectivity.READY:
                await asyncio.sleep(0.01)
        assert await create_certificate(connection)
        assert anonymous.get_state() is grpc.ChannelConnectivity.READY


async def test_invalid_revocation_list_aborts_the_start(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StartError, match="revocation list is not in PEM"):
        async with running(tmp_path, plugged_in(tmp_path, revoked=b"invalid")):
            pass


async def test_invalid_revocation_list_leaves_the_previous_one_in_force(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    revoked = issue(SIGNER, WEB)
    async with running(tmp_path, plugged_in(tmp_path, revoked=leaf_list(revoked))) as plane:
        (tmp_path / "cacerts" / "ca-crl.pem").write_bytes(b"invalid")
        await plane.until(lambda: any("revocation list is not in PEM" in line for line in caplog.messages))
        with pytest.raises(grpc.aio.AioRpcError):
            await renew(plane, revoked)


def test_certificates_of_other_issuers_with_the_same_serial_number_are_accepted() -> None:
    revoked = leaf(issue(SIGNER, WEB))
    lists = crl(ROOT.certificate, ROOT.key, revoked) + leaf_list()
    der = revoked.public_bytes(serialization.Encoding.DER)
    RevokedCertificates(lists).check([der])
    with pytest.raises(IdentityError, match=f"{revoked.serial_number:x} in the chain has been revoked"):
        RevokedCertificates(crl(SIGNER.certificate, SIGNER.key, revoked) + lists).check([der])
