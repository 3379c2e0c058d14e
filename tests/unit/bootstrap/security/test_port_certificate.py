"""Certificate of a TLS port: its source and its renewal."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import ssl
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from ca.errors import SigningError
from pilot.bootstrap.security import port_certificate as server_certificate
from pilot.bootstrap.security.port_certificate import CertificateFiles, PortCertificate, dns_names, find_files
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.lib.start_error import StartError
from pilot.settings.security import SecurePortSettings
from pilot.xds.tls.context import CertificatePair, TlsRules, make_context
from testing.control_planes.secure_plane import issue
from testing.kube.kube_access import until
from testing.security.certificates import root

ISSUER, OTHER = root(1), root(2)


def pair(name: str = "istiod") -> CertificatePair:
    credential = issue(ISSUER, name, now=ISSUER.certificate.not_valid_before_utc)
    return CertificatePair(credential.chain, credential.key)


class Issuer:
    """Issuer of server certificates."""

    def __init__(self, roots: bytes = ISSUER.roots_pem) -> None:
        self.on_change: list[Callable[[], None]] = []
        self.crl, self.roots, self.requests = b"", roots, list[Sequence[str]]()
        self.results: Sequence[CertificatePair] | Exception = (pair(),)

    def roots_pem(self) -> bytes:
        return self.roots

    def pairs(self, names: Sequence[str]) -> Sequence[CertificatePair]:
        self.requests.append(names)
        if isinstance(self.results, Exception):
            raise self.results
        return self.results


class Contexts:
    """Records the arguments of TLS contexts."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._real = make_context
        patch.setattr(server_certificate, "make_context", self._make)
        patch.setattr(server_certificate, "DEBOUNCE", 0.001)

    def _make(self, *args: Any) -> ssl.SSLContext:
        self.calls.append(args)
        return self._real(*args)


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> Contexts:
    return Contexts(monkeypatch)


RULES = TlsRules(ssl.TLSVersion.TLSv1_3)


def certificate(
    issuer: Issuer | None, protocol: str = "h2", registration: Any = None, **settings: Any
) -> PortCertificate:
    return PortCertificate(
        SecurePortSettings(**settings), RULES, lambda: ("a.svc", "b.svc"), issuer, protocol, registration
    )


async def test_certificate_is_issued_for_the_control_plane_names(contexts: Contexts) -> None:
    issuer, signers = Issuer(), Issuer(OTHER.roots_pem)
    port_certificate = certificate(issuer, registration=signers)
    assert port_certificate.context is None
    await port_certificate.start()
    assert contexts.calls == [(issuer.results, ISSUER.roots_pem + OTHER.roots_pem, RULES)]
    assert issuer.requests == [("a.svc", "b.svc")]
    assert port_certificate.context is not None
    await port_certificate.stop()


@pytest.mark.parametrize("source", ["authority", "signers"])
async def test_certificate_is_renewed_when_issuer_or_roots_change(
    contexts: Contexts, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    issuer, signers, contexts_in_use = Issuer(), Issuer(OTHER.roots_pem), list[ssl.SSLContext]()
    port_certificate = certificate(issuer, registration=signers)
    port_certificate.on_change.append(contexts_in_use.append)
    await port_certificate.start()
    first = port_certificate.context
    [on_change] = (issuer if source == "authority" else signers).on_change
    for _ in range(3):
        on_change()
    await until(lambda: bool(contexts_in_use))
    assert (len(contexts.calls), contexts_in_use) == (2, [port_certificate.context])
    assert port_certificate.context is not first
    assert caplog.messages == ["reloaded the server certificate and the roots"]
    await port_certificate.stop()


async def test_failed_renewal_keeps_the_certificate(contexts: Contexts, caplog: pytest.LogCaptureFixture) -> None:
    issuer, contexts_in_use = Issuer(), list[ssl.SSLContext]()
    port_certificate = certificate(issuer)
    port_certificate.on_change.append(contexts_in_use.append)
    await port_certificate.start()
    first, issuer.results = port_certificate.context, SigningError("CERT_GEN_ERROR", "the signer has ended")
    issuer.on_change[0]()
    await until(lambda: bool(caplog.messages))
    assert caplog.messages == [
        "cannot reload the server certificate; the current one stays in use: the signer has ended"
    ]
    assert (port_certificate.context, contexts_in_use) == (first, [])
    await port_certificate.stop()


async def test_no_renewal_after_stop(contexts: Contexts) -> None:
    issuer = Issuer()
    port_certificate = certificate(issuer)
    await port_certificate.start()
    issuer.on_change[0]()
    await port_certificate.stop()
    await asyncio.sleep(0.01)
    assert len(contexts.calls) == 1
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@pytest.mark.parametrize(
    ("issuer", "provider", "has_certificate"),
    [
        (True, "istiod", True),
        (True, "k8s.io/example.com/mesh", True),
        (True, "none", False),
        (False, "istiod", False),
        (False, "k8s.io/a", False),
    ],
)
async def test_certificate_needs_an_issuer(
    contexts: Contexts, issuer: bool, provider: str, has_certificate: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stub_issuer = Issuer() if issuer else None
    port_certificate = certificate(stub_issuer, certificate_provider=provider)
    await port_certificate.start()
    assert (port_certificate.context is not None) is has_certificate
    assert caplog.messages == (
        [] if has_certificate else ["a TLS port is disabled because it has no server certificate"]
    )
    for on_change in stub_issuer.on_change if stub_issuer is not None else ():
        on_change()
    await asyncio.sleep(0.01)
    assert (port_certificate.context is not None) is has_certificate, "an issuer change does not enable the port"
    await port_certificate.stop()


async def test_failed_issuance_aborts_the_start(contexts: Contexts) -> None:
    issuer = Issuer()
    issuer.results = SigningError("CERT_GEN_ERROR", "the signer has ended")
    with pytest.raises(StartError, match=r"^cannot load the server certificate: the signer has ended$"):
        await certificate(issuer).start()


# -- files -------------------------------------------------------------------------------------------------------------


def write(folder: pathlib.Path, credential: CertificatePair) -> dict[str, str]:
    (folder / "chain.pem").write_bytes(credential.chain)
    (folder / "key.pem").write_bytes(credential.key)
    (folder / "roots.pem").write_bytes(OTHER.roots_pem)
    names = {"certificate_file": "chain.pem", "key_file": "key.pem", "roots_file": "roots.pem"}
    return {field: str(folder / name) for field, name in names.items()}


async def test_files_win_over_the_authority(contexts: Contexts, tmp_path: pathlib.Path) -> None:
    credential, contexts_in_use = pair(), list[ssl.SSLContext]()
    port_certificate = certificate(Issuer(), certificate_provider="none", **write(tmp_path, credential))
    port_certificate.on_change.append(contexts_in_use.append)
    await port_certificate.start()
    assert contexts.calls == [((credential,), ISSUER.roots_pem + OTHER.roots_pem, RULES)]
    other = pair("other")
    write(tmp_path, other)
    await until(lambda: bool(contexts_in_use) and contexts.calls[-1][0] == (other,))
    await port_certificate.stop()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == [], (
        "the watch of the files has ended"
    )


async def test_files_need_no_issuer(contexts: Contexts, tmp_path: pathlib.Path) -> None:
    port_certificate = certificate(None, **write(tmp_path, pair()))
    await port_certificate.start()
    assert contexts.calls[0][1] == OTHER.roots_pem
    await port_certificate.stop()


async def test_invalid_files_abort_the_start(tmp_path: pathlib.Path) -> None:
    files = write(tmp_path, pair())
    key = tmp_path / "key.pem"

    async def error() -> str:
        with pytest.raises(StartError) as raised:
            await certificate(None, **files).start()
        return str(raised.value).removeprefix("cannot load the server certificate: ").replace(f"{tmp_path}/", "")

    key.write_text("nonsense")
    assert await error() == "--tlsKeyFile key.pem contains no private key in PEM, which starts with -----BEGIN"
    key.unlink()
    assert await error() == "cannot read --tlsKeyFile key.pem: No such file or directory"
    other_key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write(tmp_path, CertificatePair(pair().chain, other_key))
    assert await error() == (
        "--tlsKeyFile key.pem does not match --tlsCertFile chain.pem: "
        "the certificate was issued for another private key"
    )
    write(tmp_path, pair())
    (tmp_path / "roots.pem").write_text("")
    assert await error() == "--caCertFile roots.pem is empty: it must contain a certificate in PEM"


async def test_mounted_files_that_do_not_match_are_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_certificate, "MOUNT_PATH", str(tmp_path))
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "tls.crt").write_bytes(pair().key)
    (tmp_path / "tls" / "tls.key").write_bytes(pair().chain)
    (tmp_path / "tls" / "ca.crt").write_bytes(OTHER.roots_pem)
    with pytest.raises(
        StartError, match=r"/tls/tls.crt contains a private key, and \S*/tls/tls.key a certificate: swap the two files$"
    ):
        await certificate(None).start()


def test_files_come_from_flags_or_the_mount(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = tmp_path / "istiod"
    monkeypatch.setattr(server_certificate, "MOUNT_PATH", str(mount))
    assert find_files(SecurePortSettings()) is None
    flags: Any = {"certificate_file": "a", "key_file": "b", "roots_file": "c"}
    assert find_files(SecurePortSettings(**flags)) == CertificateFiles("a", "b", "c")
    for name in flags:
        assert find_files(SecurePortSettings(**{**flags, name: ""})) is None
    for folder in ("tls", "ca"):
        (mount / folder).mkdir(parents=True)
    for name in ("tls.crt", "tls.key"):
        (mount / "tls" / name).write_text("")
    assert find_files(SecurePortSettings()) is None, "the roots are missing"
    (mount / "tls" / "ca.crt").write_text("")
    chain, key = f"{mount}/tls/tls.crt", f"{mount}/tls/tls.key"
    assert find_files(SecurePortSettings()) == CertificateFiles(chain, key, f"{mount}/tls/ca.crt")
    (mount / "ca" / "root-cert.pem").write_text("")
    assert find_files(SecurePortSettings()) == CertificateFiles(chain, key, f"{mount}/ca/root-cert.pem")
    assert find_files(SecurePortSettings(**flags)) == CertificateFiles("a", "b", "c")
    (mount / "tls" / "tls.key").unlink()
    assert find_files(SecurePortSettings()) is None


def test_dns_names_of_the_control_plane() -> None:
    defaults = ("istio-pilot.mesh.svc", "istiod-remote.mesh.svc", "istiod.mesh.svc")
    mesh = MeshConfig()
    without_address = replace(mesh, default_config=replace(mesh.default_config, discovery_address=""))
    assert dns_names(without_address, "mesh", "", ()) == defaults == dns_names(without_address, "mesh", "default", ())
    assert dns_names(without_address, "mesh", "blue", ("b.com", "istiod.mesh.svc")) == (
        "b.com",
        defaults[0],
        "istiod-blue.mesh.svc",
        *defaults[1:],
    )
    with_address = replace(mesh, default_config=replace(mesh.default_config, discovery_address="a.com:15012"))
    assert dns_names(with_address, "mesh", "", ()) == ("a.com", *defaults)
