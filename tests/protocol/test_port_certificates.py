"""What the authority issues at the port with TLS, and the certificate that the port itself shows."""

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
from testing.control_planes.secure_plane import WEB, denied, issue, running, served_certificate
from testing.security.certificates import DAY, intermediate, rsa_key, write_plugged_in
from testing.security.certificates import root as other_root
from testing.security.tokens import token


async def test_names_that_a_request_asks_for_do_not_count(tmp_path: pathlib.Path) -> None:
    """A CSR with foreign or several names gets the caller's identity, and no other."""
    boss = "spiffe://cluster.local/ns/istio-system/sa/istiod"
    async with running(tmp_path) as it, secure_channel(it.port, it.root) as channel:
        for names in ((boss,), (WEB, boss), ("spiffe://elsewhere/ns/shop/sa/web", "https://example.com")):
            chain = await create_certificate(channel, token("shop", "web"), names=names)
            assert uris(chain[0]) == [WEB]
        assert uris((await create_certificate(channel, token("shop", "a.b"), names=(boss,)))[0]) == [
            "spiffe://cluster.local/ns/shop/sa/a.b"
        ]


async def test_the_certificate_of_a_caller_renews_itself_and_nobody_else(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as it, secure_channel(it.port, it.root, it.shown(WEB)) as channel:
        assert uris((await create_certificate(channel))[0]) == [WEB]
        text = it.metrics()
    for line in ("citadel_server_csr_count 1", "citadel_server_success_cert_issuance_count 1"):
        assert line in text
    expires = next(line for line in text if line.startswith("citadel_server_root_cert_expiry_timestamp "))
    assert float(expires.split()[1]) == pytest.approx(it.signer.certificate.not_valid_after_utc.timestamp())


@pytest.mark.parametrize(
    ("asked", "code", "line"),
    [
        ({"seconds": 91 * 86_400}, grpc.StatusCode.INVALID_ARGUMENT, "CSR signing error (TTL_ERROR)"),
        ({"request": b"nonsense"}, grpc.StatusCode.INVALID_ARGUMENT, "CSR signing error (CSR_ERROR)"),
    ],
)
async def test_what_is_wrong_with_a_request_is_told_by_its_code(
    tmp_path: pathlib.Path, asked: dict[str, Any], code: grpc.StatusCode, line: str
) -> None:
    async with running(tmp_path) as it:
        assert await denied(it, token(), **asked) == (code, line)


async def test_the_port_shows_the_names_at_which_proxies_call_it(tmp_path: pathlib.Path) -> None:
    environ = {"REVISION": "blue", "ISTIOD_CUSTOM_HOST": "pilot.example.com,istiod.istio-system.svc"}
    async with running(tmp_path, environ) as it:
        certificate = await served_certificate(it.port)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
            x509.DNSName
        )
    services = ("istio-pilot", "istiod", "istiod-blue", "istiod-remote")
    assert names == sorted(["pilot.example.com", *(f"{name}.istio-system.svc" for name in services)])


async def test_a_plugged_in_signer_that_changes_is_served_live_and_old_connections_stay(tmp_path: pathlib.Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    root, folder = other_root(6, now=now), tmp_path / "cacerts"
    folder.mkdir()
    first, second = (intermediate(root, number, life=400 * DAY) for number in (1, 2))
    write_plugged_in(folder, first)
    async with (
        running(tmp_path, {"ROOT_CA_DIR": str(folder)}) as it,
        SecureClient(it.port, root.roots_pem, token=token("shop", "web")) as client,
    ):
        await client.ask("cds")
        await client.take()
        before = await served_certificate(it.port)
        assert before.issuer == first.certificate.subject
        write_plugged_in(folder, second)
        async with asyncio.timeout(20):
            while (await served_certificate(it.port)).issuer != second.certificate.subject:
                await asyncio.sleep(0.02)
        shown = await enroll(it.port, root.roots_pem, token("shop", "web"))
        assert x509.load_pem_x509_certificates(shown.chain)[1] == second.certificate
        for old_or_new in (shown, issue(first, WEB)):
            async with SecureClient(it.port, root.roots_pem, old_or_new) as other:
                await other.ask("cds")
                await other.take()
        await client.ask("lds")
        await client.take()
        assert any(line.startswith("citadel_server_cert_chain_expiry_seconds ") for line in it.metrics())


async def test_a_self_signed_root_survives_in_its_folder(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path, caDir=str(tmp_path / "ca")) as it:
        first = it.root
    async with running(tmp_path, caDir=str(tmp_path / "ca")) as it:
        assert it.root == first == (tmp_path / "ca" / "ca-cert.pem").read_bytes()
    async with running(tmp_path) as it:
        assert it.root != first


async def test_files_of_the_operator_are_the_ports_certificate_and_may_be_replaced(tmp_path: pathlib.Path) -> None:
    root = other_root(7, now=datetime.datetime.now(datetime.UTC))
    write_server_files(tmp_path, root, "one.example.com")
    flags = {
        "tlsCertFile": str(tmp_path / "tls.crt"),
        "tlsKeyFile": str(tmp_path / "tls.key"),
        "caCertFile": str(tmp_path / "ca.crt"),
    }
    async with running(tmp_path, **flags) as it:
        assert dns_of(await served_certificate(it.port)) == ["one.example.com"]
        async with secure_channel(it.port, root.roots_pem, issue(root, WEB), name="one.example.com") as channel:
            assert uris((await create_certificate(channel))[0]) == [WEB]
        (tmp_path / "tls.crt").write_text("broken")
        await asyncio.sleep(0)
        write_server_files(tmp_path, root, "two.example.com")
        async with asyncio.timeout(20):
            while dns_of(await served_certificate(it.port)) != ["two.example.com"]:
                await asyncio.sleep(0.02)


def write_server_files(folder: pathlib.Path, signer: Signer, name: str) -> None:
    made = issue(signer, name)
    (folder / "tls.key").write_bytes(made.key)
    (folder / "tls.crt").write_bytes(made.chain)
    (folder / "ca.crt").write_bytes(signer.roots_pem)


def dns_of(certificate: x509.Certificate) -> list[str]:
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.DNSName
    )


async def test_a_part_of_a_plugged_in_signer_keeps_the_process_from_starting(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ca-key.pem").write_bytes(key_pem(rsa_key()))
    with pytest.raises(StartError, match=r"certificate authority: .*: missing .* .found ca-key.pem"):
        async with running(tmp_path, {"ROOT_CA_DIR": str(tmp_path)}):
            pass
