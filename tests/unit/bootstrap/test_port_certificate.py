"""The certificate of a port with TLS: where it comes from by the settings, and when another one is taken."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import ssl
from collections.abc import Callable, Sequence
from typing import Any

import pytest
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
    made = issue(ISSUER, name, now=ISSUER.certificate.not_valid_before_utc)
    return CertificatePair(made.chain, made.key)


class Issuer:
    """Whoever issues certificates for the control plane, or the signers of an API server."""

    def __init__(self, roots: bytes = ISSUER.roots_pem) -> None:
        self.on_change: list[Callable[[], None]] = []
        self.crl, self.roots, self.asked = b"", roots, list[Sequence[str]]()
        self.made: Sequence[CertificatePair] | Exception = (pair(),)

    def roots_pem(self) -> bytes:
        return self.roots

    def pairs(self, names: Sequence[str]) -> Sequence[CertificatePair]:
        self.asked.append(names)
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


class Contexts:
    """Notes what contexts are made of."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[Any, ...]] = []
        self._real = make_context
        patch.setattr(server_certificate, "make_context", self._make)
        patch.setattr(server_certificate, "DEBOUNCE", 0.001)

    def _make(self, *given: Any) -> ssl.SSLContext:
        self.made.append(given)
        return self._real(*given)


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> Contexts:
    return Contexts(monkeypatch)


RULES = TlsRules(ssl.TLSVersion.TLSv1_3)


def certificate(issuer: Issuer | None, protocol: str = "h2", registration: Any = None, **said: Any) -> PortCertificate:
    return PortCertificate(
        SecurePortSettings(**said), RULES, lambda: ("a.svc", "b.svc"), issuer, protocol, registration
    )


async def test_the_authority_issues_it_for_the_names_of_the_control_plane(contexts: Contexts) -> None:
    issuer, signers = Issuer(), Issuer(OTHER.roots_pem)
    it = certificate(issuer, "http/1.1", signers)
    assert it.context is None
    await it.start()
    assert contexts.made == [(issuer.made, ISSUER.roots_pem + OTHER.roots_pem, RULES, "http/1.1")]
    assert issuer.asked == [("a.svc", "b.svc")]
    assert it.context is not None
    await it.stop()


@pytest.mark.parametrize("which", ["authority", "signers"])
async def test_another_certificate_is_taken_when_the_issuer_or_the_roots_change(
    contexts: Contexts, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    issuer, signers, taken = Issuer(), Issuer(OTHER.roots_pem), list[ssl.SSLContext]()
    it = certificate(issuer, registration=signers)
    it.on_change.append(taken.append)
    await it.start()
    first = it.context
    [changed] = (issuer if which == "authority" else signers).on_change
    for _ in range(3):
        changed()
    await until(lambda: bool(taken))
    assert (len(contexts.made), taken) == (2, [it.context])
    assert it.context is not first
    assert caplog.messages == ["reloaded the server certificate and the roots"]
    await it.stop()


async def test_what_cannot_be_used_leaves_the_certificate_of_before(
    contexts: Contexts, caplog: pytest.LogCaptureFixture
) -> None:
    issuer, taken = Issuer(), list[ssl.SSLContext]()
    it = certificate(issuer)
    it.on_change.append(taken.append)
    await it.start()
    first, issuer.made = it.context, SigningError("CERT_GEN_ERROR", "the signer has ended")
    issuer.on_change[0]()
    await until(lambda: bool(caplog.messages))
    assert caplog.messages == [
        "cannot reload the server certificate, the current one stays in use: the signer has ended"
    ]
    assert (it.context, taken) == (first, [])
    await it.stop()


async def test_after_the_end_nothing_is_renewed(contexts: Contexts) -> None:
    issuer = Issuer()
    it = certificate(issuer)
    await it.start()
    issuer.on_change[0]()
    await it.stop()
    await asyncio.sleep(0.01)
    assert len(contexts.made) == 1
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@pytest.mark.parametrize(
    ("issuer", "provider", "served"),
    [
        (True, "istiod", True),
        (True, "k8s.io/example.com/mesh", True),
        (True, "none", False),
        (False, "istiod", False),
        (False, "k8s.io/a", False),
    ],
)
async def test_without_an_issuer_there_is_no_certificate(
    contexts: Contexts, issuer: bool, provider: str, served: bool, caplog: pytest.LogCaptureFixture
) -> None:
    found = Issuer() if issuer else None
    it = certificate(found, certificate_provider=provider)
    await it.start()
    assert (it.context is not None) is served
    assert caplog.messages == ([] if served else ["the port is disabled because there is no server certificate for it"])
    for changed in found.on_change if found is not None else ():
        changed()
    await asyncio.sleep(0.01)
    assert (it.context is not None) is served, "a port that is not served stays so"
    await it.stop()


async def test_an_issuer_that_cannot_ends_the_start(contexts: Contexts) -> None:
    issuer = Issuer()
    issuer.made = SigningError("CERT_GEN_ERROR", "the signer has ended")
    with pytest.raises(StartError, match=r"^cannot load the server certificate: the signer has ended$"):
        await certificate(issuer).start()


# -- files -------------------------------------------------------------------------------------------------------------


def write(folder: pathlib.Path, made: CertificatePair) -> dict[str, str]:
    (folder / "chain.pem").write_bytes(made.chain)
    (folder / "key.pem").write_bytes(made.key)
    (folder / "roots.pem").write_bytes(OTHER.roots_pem)
    names = {"certificate_file": "chain.pem", "key_file": "key.pem", "roots_file": "roots.pem"}
    return {field: str(folder / name) for field, name in names.items()}


async def test_files_come_before_the_authority_whose_roots_are_trusted_too(
    contexts: Contexts, tmp_path: pathlib.Path
) -> None:
    made, taken = pair(), list[ssl.SSLContext]()
    it = certificate(Issuer(), certificate_provider="none", **write(tmp_path, made))
    it.on_change.append(taken.append)
    await it.start()
    assert contexts.made == [((made,), ISSUER.roots_pem + OTHER.roots_pem, RULES, "h2")]
    other = pair("other")
    write(tmp_path, other)
    await until(lambda: bool(taken) and contexts.made[-1][0] == (other,))
    await it.stop()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == [], (
        "files are followed no more"
    )


async def test_files_alone_are_enough(contexts: Contexts, tmp_path: pathlib.Path) -> None:
    it = certificate(None, **write(tmp_path, pair()))
    await it.start()
    assert contexts.made[0][1] == OTHER.roots_pem
    await it.stop()


async def test_files_that_are_wrong_end_the_start(tmp_path: pathlib.Path) -> None:
    files = write(tmp_path, pair())
    (tmp_path / "key.pem").write_text("nonsense")
    with pytest.raises(StartError, match=r"^cannot load the server certificate: "):
        await certificate(None, **files).start()
    (tmp_path / "key.pem").unlink()
    with pytest.raises(StartError, match="No such file"):
        await certificate(None, **files).start()


def test_files_are_those_of_all_three_flags_else_those_that_are_mounted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert find_files(SecurePortSettings()) is None, "there are no roots"
    (mount / "tls" / "ca.crt").write_text("")
    chain, key = f"{mount}/tls/tls.crt", f"{mount}/tls/tls.key"
    assert find_files(SecurePortSettings()) == CertificateFiles(chain, key, f"{mount}/tls/ca.crt")
    (mount / "ca" / "root-cert.pem").write_text("")
    assert find_files(SecurePortSettings()) == CertificateFiles(chain, key, f"{mount}/ca/root-cert.pem")
    assert find_files(SecurePortSettings(**flags)) == CertificateFiles("a", "b", "c")
    (mount / "tls" / "tls.key").unlink()
    assert find_files(SecurePortSettings()) is None


def test_names_are_those_at_which_proxies_call() -> None:
    usual = ("istio-pilot.mesh.svc", "istiod-remote.mesh.svc", "istiod.mesh.svc")
    mesh = MeshConfig()
    nowhere = replace(mesh, default_config=replace(mesh.default_config, discovery_address=""))
    assert dns_names(nowhere, "mesh", "", ()) == usual == dns_names(nowhere, "mesh", "default", ())
    assert dns_names(nowhere, "mesh", "blue", ("b.com", "istiod.mesh.svc")) == (
        "b.com",
        usual[0],
        "istiod-blue.mesh.svc",
        *usual[1:],
    )
    called = replace(mesh, default_config=replace(mesh.default_config, discovery_address="a.com:15012"))
    assert dns_names(called, "mesh", "", ()) == ("a.com", *usual)
