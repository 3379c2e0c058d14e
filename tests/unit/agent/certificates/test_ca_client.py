"""Certificate requests to the authority."""

from __future__ import annotations

import datetime
import pathlib

import pytest
from cryptography import x509

from pilot.agent.agent_settings import CertificateSettings
from pilot.agent.certificates.ca_client import CaClientError, fetch_certificate
from pilot.agent.certificates.certificate_renewer import (
    write_certificate,
)
from pilot.agent.upstream_server import (
    ClientCertificate,
    UpstreamConfigError,
    UpstreamServer,
)
from pilot.lib.duration import Duration
from testing.control_planes.secure_port import NAME, SecurePort
from testing.security import certificates

IDENTITY = "spiffe://cluster.local/ns/shop/sa/web"


EC_KEYS = CertificateSettings(algorithm="ECDSA")


def upstream(front: SecurePort, folder: pathlib.Path, token: str = IDENTITY) -> UpstreamServer:
    (folder / "token").write_text(token)
    return UpstreamServer(
        front.address, str(front.write_root(folder)), NAME, str(folder / "token"), "Kubernetes", None, {}
    )


async def test_authority_issues_for_the_identity_of_the_token(tmp_path: pathlib.Path) -> None:
    root = certificates.root(now=datetime.datetime.now(datetime.UTC))
    front = SecurePort(root)
    await front.start()
    certificate = await fetch_certificate(
        upstream(front, tmp_path), EC_KEYS, "spiffe://cluster.local/ns/other/sa/other", b"# more\n"
    )
    await front.stop()
    leaf = x509.load_pem_x509_certificate(certificate.chain)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [IDENTITY]
    assert certificate.roots == root.roots_pem + b"# more\n"
    assert certificate.not_after - certificate.not_before == datetime.timedelta(hours=24, minutes=15)


async def test_requested_ttl_follows_the_setting(tmp_path: pathlib.Path) -> None:
    front = SecurePort(certificates.root(now=datetime.datetime.now(datetime.UTC)))
    await front.start()
    certificate = await fetch_certificate(
        upstream(front, tmp_path), CertificateSettings(algorithm="ECDSA", ttl=Duration.of(60)), IDENTITY
    )
    await front.stop()
    assert certificate.not_after - certificate.not_before == datetime.timedelta(seconds=66), "with the backdating"


async def test_authority_errors_are_reported(tmp_path: pathlib.Path) -> None:
    front = SecurePort(certificates.root(now=datetime.datetime.now(datetime.UTC)))
    await front.start()
    with pytest.raises(
        CaClientError,
        match="returned UNAUTHENTICATED: request authenticate failure; the control plane's log says why it rejects the token",
    ):
        await fetch_certificate(upstream(front, tmp_path, "nobody"), EC_KEYS, IDENTITY)
    with pytest.raises(CaClientError, match="returned INVALID_ARGUMENT: CSR signing error"):
        await fetch_certificate(
            upstream(front, tmp_path), CertificateSettings(algorithm="ECDSA", ttl=Duration.of(10**9)), IDENTITY
        )
    with pytest.raises(
        CaClientError, match=r"UNAVAILABLE: .*; the server's certificate does not contain the name a\.b"
    ):
        await fetch_certificate(upstream(front, tmp_path)._replace(server_name="a.b"), EC_KEYS, IDENTITY)
    (tmp_path / "other.pem").write_bytes(certificates.root(9).roots_pem)
    with pytest.raises(CaClientError, match=r"UNAVAILABLE: .*; no root certificate in .*other\.pem signed"):
        await fetch_certificate(upstream(front, tmp_path)._replace(root=str(tmp_path / "other.pem")), EC_KEYS, IDENTITY)
    await front.stop()


async def test_missing_roots_and_credentials_are_reported(tmp_path: pathlib.Path) -> None:
    server = UpstreamServer(
        "127.0.0.1:1", str(tmp_path / "root.pem"), NAME, str(tmp_path / "token"), "Kubernetes", None, {}
    )
    with pytest.raises(CaClientError, match=r"cannot read the root certificates .*root.pem: No such file"):
        await fetch_certificate(server, EC_KEYS, IDENTITY)
    (tmp_path / "root.pem").write_text("a key")
    with pytest.raises(CaClientError, match=r"root.pem contains no certificate in PEM"):
        await fetch_certificate(server, EC_KEYS, IDENTITY)
    with pytest.raises(UpstreamConfigError, match=r"no token in .*token and no client certificate; ISTIO_TOKEN_FILE"):
        server.metadata()
    (tmp_path / "token").mkdir()
    with pytest.raises(
        UpstreamConfigError, match=r"^ISTIO_TOKEN_FILE: cannot read the token file .*/token: Is a directory$"
    ):
        server.metadata()


async def test_client_certificate_is_presented_without_a_token(tmp_path: pathlib.Path) -> None:
    front = SecurePort(certificates.root(now=datetime.datetime.now(datetime.UTC)))
    await front.start()
    with_token = upstream(front, tmp_path)
    write_certificate(str(tmp_path), await fetch_certificate(with_token, EC_KEYS, IDENTITY))
    with_certificate = with_token._replace(
        client_certificate=ClientCertificate(str(tmp_path / "key.pem"), str(tmp_path / "cert-chain.pem")),
        token_file=str(tmp_path / "none"),
    )
    with pytest.raises(
        CaClientError, match="UNAUTHENTICATED"
    ):  # the server accepts only tokens; the handshake succeeds
        await fetch_certificate(with_certificate, EC_KEYS, IDENTITY)
    (tmp_path / "cert-chain.pem").unlink()
    with pytest.raises(CaClientError, match="cannot read the client certificate"):
        await fetch_certificate(with_certificate, EC_KEYS, IDENTITY)
    await front.stop()
