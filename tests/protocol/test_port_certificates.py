"""Certificates from the CA on the TLS port, and the port's serving certificate."""

from __future__ import annotations

import asyncio
import datetime
import pathlib
from typing import Any

import grpc
import pytest
from cryptography import x509

from ca.pem import key_pem
from ca.signer import Signer
from pilot.bootstrap import StartError
from testing.clients.secure_client import SecureClient, create_certificate, enroll, secure_channel, uris
from testing.control_planes.secure_plane import WEB, denial, issue, running, served_certificate
from testing.security.certificates import DAY, intermediate, rsa_key, write_plugged_in
from testing.security.certificates import root as make_root
from testing.security.tokens import token


async def test_names_in_a_csr_are_ignored(tmp_path: pathlib.Path) -> None:
    """Names in a CSR are ignored: the certificate has only the caller's identity."""
    boss = "spiffe://cluster.local/ns/istio-system/sa/istiod"
    async with running(tmp_path) as env, secure_channel(env.port, env.root) as channel:
        for names in ((boss,), (WEB, boss), ("spiffe://elsewhere/ns/shop/sa/web", "https://example.com")):
            chain = await create_certificate(channel, token("shop", "web"), names=names)
            assert uris(chain[0]) == [WEB]
        assert uris((await create_certificate(channel, token("shop", "a.b"), names=(boss,)))[0]) == [
            "spiffe://cluster.local/ns/shop/sa/a.b"
        ]


async def test_certificate_renews_itself(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as env, secure_channel(env.port, env.root, env.client_certificate(WEB)) as channel:
        assert uris((await create_certificate(channel))[0]) == [WEB]
        text = env.metrics()
    for line in ("citadel_server_csr_count 1", "citadel_server_success_cert_issuance_count 1"):
        assert line in text
    expires = next(line for line in text if line.startswith("citadel_server_root_cert_expiry_timestamp "))
    assert float(expires.split()[1]) == pytest.approx(env.signer.certificate.not_valid_after_utc.timestamp())


@pytest.mark.parametrize(
    ("csr", "code", "line"),
    [
        ({"seconds": 91 * 86_400}, grpc.StatusCode.INVALID_ARGUMENT, "CSR signing error (TTL_ERROR)"),
        ({"csr_pem": b"nonsense"}, grpc.StatusCode.INVALID_ARGUMENT, "CSR signing error (CSR_ERROR)"),
    ],
)
async def test_status_of_invalid_csrs(
    tmp_path: pathlib.Path, csr: dict[str, Any], code: grpc.StatusCode, line: str
) -> None:
    async with running(tmp_path) as env:
        assert await denial(env, token(), **csr) == (code, line)


async def test_names_in_the_serving_certificate(tmp_path: pathlib.Path) -> None:
    environ = {"REVISION": "blue", "ISTIOD_CUSTOM_HOST": "pilot.example.com,istiod.istio-system.svc"}
    async with running(tmp_path, environ) as env:
        certificate = await served_certificate(env.port)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
            x509.DNSName
        )
    services = ("istio-pilot", "istiod", "istiod-blue", "istiod-remote")
    assert names == sorted(["pilot.example.com", *(f"{name}.istio-system.svc" for name in services)])


async def test_changed_plugged_in_signer_is_served_without_a_disconnect(tmp_path: pathlib.Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    root, folder = make_root(6, now=now), tmp_path / "cacerts"
    folder.mkdir()
    first, second = (intermediate(root, number, lifetime=400 * DAY) for number in (1, 2))
    write_plugged_in(folder, first)
    async with (
        running(tmp_path, {"ROOT_CA_DIR": str(folder)}) as env,
        SecureClient(env.port, root.roots_pem, token=token("shop", "web")) as client,
    ):
        await client.request("cds")
        await client.receive()
        before = await served_certificate(env.port)
        assert before.issuer == first.certificate.subject
        write_plugged_in(folder, second)
        async with asyncio.timeout(20):
            while (await served_certificate(env.port)).issuer != second.certificate.subject:
                await asyncio.sleep(0.02)
        credentials = await enroll(env.port, root.roots_pem, token("shop", "web"))
        assert x509.load_pem_x509_certificates(credentials.chain)[1] == second.certificate
        for client_credentials in (credentials, issue(first, WEB)):
            async with SecureClient(env.port, root.roots_pem, client_credentials) as other:
                await other.request("cds")
                await other.receive()
        await client.request("lds")
        await client.receive()
        assert any(line.startswith("citadel_server_cert_chain_expiry_seconds ") for line in env.metrics())


async def test_self_signed_root_is_stored_in_its_directory(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path, caDir=str(tmp_path / "ca")) as env:
        first = env.root
    async with running(tmp_path, caDir=str(tmp_path / "ca")) as env:
        assert env.root == first == (tmp_path / "ca" / "ca-cert.pem").read_bytes()
    async with running(tmp_path) as env:
        assert env.root != first


async def test_serving_certificate_from_files_is_reloaded(tmp_path: pathlib.Path) -> None:
    root = make_root(7, now=datetime.datetime.now(datetime.UTC))
    write_server_files(tmp_path, root, "one.example.com")
    flags = {
        "tlsCertFile": str(tmp_path / "tls.crt"),
        "tlsKeyFile": str(tmp_path / "tls.key"),
        "caCertFile": str(tmp_path / "ca.crt"),
    }
    async with running(tmp_path, **flags) as env:
        assert dns_of(await served_certificate(env.port)) == ["one.example.com"]
        async with secure_channel(env.port, root.roots_pem, issue(root, WEB), name="one.example.com") as channel:
            assert uris((await create_certificate(channel))[0]) == [WEB]
        (tmp_path / "tls.crt").write_text("broken")
        await asyncio.sleep(0)
        write_server_files(tmp_path, root, "two.example.com")
        async with asyncio.timeout(20):
            while dns_of(await served_certificate(env.port)) != ["two.example.com"]:
                await asyncio.sleep(0.02)


def write_server_files(folder: pathlib.Path, signer: Signer, name: str) -> None:
    issued = issue(signer, name)
    (folder / "tls.key").write_bytes(issued.key)
    (folder / "tls.crt").write_bytes(issued.chain)
    (folder / "ca.crt").write_bytes(signer.roots_pem)


def dns_of(certificate: x509.Certificate) -> list[str]:
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.DNSName
    )


async def test_incomplete_plugged_in_signer_prevents_startup(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ca-key.pem").write_bytes(key_pem(rsa_key()))
    with pytest.raises(StartError, match=r"certificate authority: .*: missing .* .found ca-key.pem"):
        async with running(tmp_path, {"ROOT_CA_DIR": str(tmp_path)}):
            pass
