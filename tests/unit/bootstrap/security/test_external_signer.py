"""The signer that requests certificates from the API server."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from typing import Any

import msgspec
import pytest

from ca.errors import SigningError
from pilot.bootstrap.security import external_signer
from pilot.bootstrap.security.external_signer import ExternalSigner
from pilot.config.mesh.mesh_config import CertificateData, MeshConfig
from pilot.kube.api_errors import KubeError
from pilot.kube.certificate_requests import SERVER_USAGES, WORKLOAD_USAGES
from pilot.lib.start_error import StartError
from pilot.settings.security import AuthoritySettings
from testing.security.certificates import IDENTITY, csr, root

CLIENT: Any = object()
FIRST, SECOND = root(1), root(2)


def make_signer(mesh: MeshConfig, domain: str = "") -> ExternalSigner:
    settings = dataclasses.replace(
        AuthoritySettings(),
        external="ISTIOD_RA_KUBERNETES_API",
        external_signer="example.com/mesh",
        external_domain=domain,
    )
    return ExternalSigner(settings, CLIENT, lambda: mesh)


def mesh_with(*entries: tuple[str, bytes]) -> MeshConfig:
    certificates = tuple(
        CertificateData(pem=pem.decode(), cert_signers=(signer,) if signer else ()) for signer, pem in entries
    )
    return msgspec.structs.replace(MeshConfig(), ca_certificates=certificates)


def test_signer_roots_come_from_the_mesh_config() -> None:
    mesh = mesh_with(
        ("a", FIRST.roots_pem),
        ("b", SECOND.roots_pem),
        ("c", b"nonsense"),
        ("", root(3).roots_pem),
        ("a", FIRST.roots_pem),
    )
    signer_client = make_signer(mesh)
    assert tuple(signer_client.roots_of("b")) == SECOND.roots
    assert tuple(signer_client.roots_of("c")) == tuple(signer_client.roots_of("d")) == ()
    assert signer_client.roots_pem() == FIRST.roots_pem + SECOND.roots_pem, "deduplicated, without roots of no signer"


async def test_signer_receives_the_workload_request(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, request = list[Any](), csr(names=(IDENTITY,))

    async def request_certificate(*args: Any) -> bytes:
        requests.append(args)
        raise KubeError("away")

    monkeypatch.setattr(external_signer, "request_certificate", request_certificate)
    signer_client = make_signer(mesh_with(("a", FIRST.roots_pem)), "x.com")
    for signer in ("", "other"):
        with pytest.raises(SigningError, match="away") as error:
            await signer_client.sign(request, (IDENTITY,), 60, signer)
        assert error.value.code == "CERT_GEN_ERROR"
    with pytest.raises(SigningError, match="away"):
        await signer_client.request_for_server(request, "x.com/servers")

    assert requests == [
        (CLIENT, "csr-workload-", request, "example.com/mesh", 60, WORKLOAD_USAGES),
        (CLIENT, "csr-workload-", request, "x.com/other", 60, WORKLOAD_USAGES),
        (CLIENT, "csr-istiod-", request, "x.com/servers", 0, SERVER_USAGES),
    ]


@pytest.mark.parametrize(
    ("domain", "files", "source"),
    [("", "server", "server"), ("", "both", "mounted"), ("x.com", "server", ""), ("x.com", "both", "mounted")],
)
async def test_root_files_win_over_the_mesh_config(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    domain: str,
    files: str,
    source: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    mounted, server = tmp_path / "root-cert.pem", tmp_path / "ca.crt"
    monkeypatch.setattr(external_signer, "ROOTS_FILE", str(mounted))
    monkeypatch.setattr(external_signer, "API_SERVER_ROOTS_FILE", str(server))
    server.write_bytes(FIRST.roots_pem)
    if files == "both":
        mounted.write_bytes(SECOND.roots_pem)
    signer_client = make_signer(mesh_with(("a", root(3).roots_pem)), domain)
    await signer_client.start()
    expected = {"server": FIRST.roots, "mounted": SECOND.roots, "": ()}[source]
    assert (tuple(signer_client.roots), tuple(signer_client.roots_of("a"))) == (expected, expected or root(3).roots)
    assert caplog.messages == ["workload certificates are issued by Kubernetes signers"]


async def test_invalid_root_file_aborts_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    (tmp_path / "roots").write_text("nonsense")
    monkeypatch.setattr(external_signer, "ROOTS_FILE", str(tmp_path / "roots"))
    with pytest.raises(StartError, match=r"^cannot read the roots of the external signer: "):
        await make_signer(MeshConfig()).start()


async def test_changed_mesh_config_roots_are_reported_once() -> None:
    first, second, calls = mesh_with(("a", FIRST.roots_pem)), mesh_with(("a", SECOND.roots_pem)), list[str]()
    signer_client = make_signer(first)
    signer_client.on_change.append(lambda: calls.append("changed"))
    await signer_client.start()
    signer_client.on_mesh_config(first)
    assert calls == [], "the roots have not changed"
    for _ in range(2):
        signer_client.on_mesh_config(second)
    assert calls == ["changed"]


async def test_refused_certificate_request_is_a_signing_error(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[Any, ...]] = []

    async def request(*args: Any) -> bytes:
        requests.append(args)
        if len(requests) > 2:
            raise KubeError("503 busy")
        return b"chain"

    monkeypatch.setattr(external_signer, "request_certificate", request)
    signer_client = make_signer(MeshConfig())

    assert (
        await signer_client._request(b"csr", "a/b", 60)
        == await signer_client.request_for_server(b"csr", "a/b")
        == b"chain"
    )
    assert requests == [
        (CLIENT, "csr-workload-", b"csr", "a/b", 60, WORKLOAD_USAGES),
        (CLIENT, "csr-istiod-", b"csr", "a/b", 0, SERVER_USAGES),
    ]
    for attempt in (signer_client._request(b"csr", "a/b", 60), signer_client.request_for_server(b"csr", "a/b")):
        with pytest.raises(SigningError, match="503 busy") as error:
            await attempt
        assert error.value.code == "CERT_GEN_ERROR"
