"""Certificates issued by Kubernetes signers, requested directly and through a control plane."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import pathlib
from collections.abc import AsyncIterator

import grpc
import pytest
from cryptography import x509

from ca.pem import bundle_pem, key_pem
from pilot.bootstrap.security.external_signer import ExternalSigner
from pilot.bootstrap.security.signed_certificate import SignedCertificate
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.kube.api_errors import KubeError
from pilot.kube.certificate_requests import WORKLOAD_USAGES, CertificateRequestError, request_certificate
from pilot.lib.flags import FlagError
from pilot.lib.start_error import StartError
from pilot.settings.security import AuthoritySettings
from testing.apiserver.request_info import RequestInfo
from testing.apiserver.server import ApiServer
from testing.clients.secure_client import ClientCertificate, SecureClient, create_certificate, secure_channel, uris
from testing.control_planes.kube_plane import running
from testing.kube.kube_access import client_of, server_with_crds, until, write_kubeconfig
from testing.security.certificates import DAY, IDENTITY, csr, ec_key, root
from testing.security.signers import REQUESTS, Signers
from testing.security.tokens import token

SIGNER = root(7, 100 * DAY, datetime.datetime.now(datetime.UTC) - DAY)
NAME = "example.com/mesh"
REQUEST = csr(names=(IDENTITY,))
TOKEN_OF_WEB = token()
USAGES = ["digital signature", "key encipherment", "server auth", "client auth"]


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with server_with_crds() as api_server:
        yield api_server


async def request_chain(server: ApiServer, seconds: int = 3600) -> bytes:
    client = client_of(server)
    try:
        return await request_certificate(client, "csr-workload-", REQUEST, NAME, seconds, WORKLOAD_USAGES)
    finally:
        await client.close()
        assert not server.store.collection(REQUESTS).objects, "the request is deleted in any case"


async def request_error(server: ApiServer) -> str:
    with pytest.raises(KubeError) as caught:
        await request_chain(server)
    return str(caught.value)


async def test_request_is_approved_issued_and_deleted(server: ApiServer) -> None:
    signers = Signers(server, {NAME: SIGNER})
    [leaf] = x509.load_pem_x509_certificates(await request_chain(server))
    assert uris(bundle_pem((leaf,)).decode()) == [IDENTITY]
    await request_chain(server, 0)
    assert [(spec["usages"], spec.get("expirationSeconds")) for spec in signers.approved] == [
        (USAGES, 3600),
        (USAGES, None),
    ]


async def test_approval_is_retried_after_a_conflict(server: ApiServer) -> None:
    def is_approval(request: RequestInfo) -> bool:
        if request.subresource == "approval" and request.name not in edits:
            edits.append(request.name)
            stored = server.store.get(REQUESTS, ("", request.name))
            assert stored is not None
            server.put({**stored.plain, "metadata": {**stored.plain["metadata"], "labels": {"a": "b"}}})
        return False

    edits: list[str] = []
    server.faults.refuse(500, matching=is_approval)
    Signers(server, {NAME: SIGNER})
    assert await request_chain(server)
    assert edits


async def test_closed_watch_is_restarted(server: ApiServer) -> None:
    def issue_late(request: RequestInfo) -> bool:
        if request.resource.id == REQUESTS and request.verb == "watch":
            watches.append(request.name)
            if len(watches) == 3:
                signers.append(Signers(server, {NAME: SIGNER}))
                stored = next(iter(server.store.collection(REQUESTS).objects.values()))
                server.put({**stored.plain, "metadata": {**stored.plain["metadata"], "labels": {"a": "b"}}})
        return False

    watches: list[str] = []
    signers: list[Signers] = []
    server.faults.refuse(500, matching=issue_late)
    client = client_of(server)
    try:
        pending = asyncio.create_task(request_certificate(client, "csr-", REQUEST, NAME, 0, WORKLOAD_USAGES))
        while not pending.done():
            server.faults.end_watches("close")
            await asyncio.sleep(0.005)
        assert await pending
        assert len(watches) >= 3
    finally:
        await client.close()


async def test_denied_request_has_a_reason(server: ApiServer) -> None:
    Signers(server, {NAME: SIGNER}, denies=True)
    assert (await request_error(server)).endswith("Denied: Policy: not here")
    server.tokens.authorizer = lambda *_: False
    server.faults.refuse(403, matching=lambda request: request.verb == "create", reason="Forbidden")
    assert (await request_error(server)).startswith("403 Forbidden")


async def test_unresponsive_signer_times_out(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.kube.certificate_requests.ISSUE_TIMEOUT", 0.05)
    assert "did not complete csr-workload-" in await request_error(server)


async def test_deleted_request_fails_immediately(server: ApiServer) -> None:
    client = client_of(server)
    try:
        pending = asyncio.create_task(request_certificate(client, "csr-", REQUEST, NAME, 0, WORKLOAD_USAGES))
        await until(lambda: any(request.verb == "watch" for request in server.requests))
        await until(lambda: bool(server.store.collection(REQUESTS).watchers))
        server.delete(next(iter(server.store.collection(REQUESTS).objects.values())).plain)
        with pytest.raises(CertificateRequestError, match="deleted before the certificate was issued"):
            await pending
    finally:
        await client.close()


MESH = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    caCertificates:
    - certSigners: [example.com/mesh]
      pem: |
PEM"""
EXTERNAL = {"EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API", "CERT_SIGNER_DOMAIN": "example.com"}


async def test_workloads_authenticate_with_certificates_of_the_signer(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    pem = "".join(f"        {line}\n" for line in SIGNER.roots_pem.decode().splitlines())
    server.apply(MESH.replace("PEM", pem))
    server.tokens.service_account("shop", "web", TOKEN_OF_WEB)
    signers = Signers(server, {NAME: SIGNER})
    environ = {**EXTERNAL, "K8S_SIGNER": NAME}
    async with running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as plane:
        await until(lambda: plane.plane.ready or plane.task.done())
        port, authority = plane.plane.ports["secure xDS"].number, plane.plane.security.authority
        assert authority is not None
        assert authority.authority is not None
        server_roots = authority.authority.signer.roots_pem
        key = ec_key(50)
        async with secure_channel(port, server_roots) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match=r"CSR signing error \(CSR_ERROR\)"):
                await create_certificate(
                    channel, TOKEN_OF_WEB, names=("spiffe://cluster.local/ns/bank/sa/admin",), key=key
                )
            chain = await create_certificate(channel, TOKEN_OF_WEB, names=(IDENTITY,), key=key)
        assert chain[-1].encode() == SIGNER.roots_pem
        assert [spec["signerName"] for spec in signers.approved] == [NAME]
        certificate = ClientCertificate("".join(chain[:-1]).encode(), key_pem(key))
        async with SecureClient(port, server_roots, certificate, SERVICE_ACCOUNT="web") as client:
            await client.request("cds")
            assert (await client.receive()).resources
            assert [connection.proxy.identity for connection in plane.plane.discovery.connections()] == [IDENTITY]


async def test_control_plane_certificate_from_a_signer_without_an_authority(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    pem = "".join(f"        {line}\n" for line in SIGNER.roots_pem.decode().splitlines())
    server.apply(MESH.replace("PEM", pem))
    server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    server.tokens.service_account("shop", "web", TOKEN_OF_WEB)
    signers = Signers(server, {NAME: SIGNER})
    environ = {**EXTERNAL, "K8S_SIGNER": NAME, "PILOT_CERT_PROVIDER": f"k8s.io/{NAME}"}
    async with running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as plane:
        await until(lambda: plane.plane.ready or plane.task.done())
        assert plane.plane.security.authority is None
        async with secure_channel(plane.plane.ports["secure xDS"].number, SIGNER.roots_pem) as channel:
            chain = await create_certificate(channel, TOKEN_OF_WEB, names=(IDENTITY,))
        assert uris(chain[0]) == [IDENTITY]
        await until(lambda: server.get("", "configmaps", "shop", "istio-ca-root-cert") is not None)
    assert (server.get("", "configmaps", "shop", "istio-ca-root-cert") or {})["data"] == {
        "root-cert.pem": SIGNER.roots_pem.decode()
    }
    assert [spec["usages"] for spec in signers.approved] == [USAGES[:3], USAGES]
    assert server.get("", "secrets", "istio-system", "istio-ca-secret") is None


async def test_control_plane_certificate_is_renewed_at_half_its_lifetime(server: ApiServer) -> None:
    settings = dataclasses.replace(AuthoritySettings(), external="ISTIOD_RA_KUBERNETES_API", external_signer=NAME)
    client, delays, wakes = client_of(server), list[float](), asyncio.Queue[None]()

    async def sleep(seconds: float) -> None:
        delays.append(seconds)
        await wakes.get()

    registration = ExternalSigner(settings, client, MeshConfig)
    certificate = SignedCertificate(registration, NAME, lambda: ["istiod.istio-system.svc"], sleep=sleep)
    server.faults.refuse(503)
    with pytest.raises(StartError, match="cannot get the control plane's certificate: 503"):
        await certificate.start()
    signers, changes = Signers(server, {NAME: SIGNER}), list[bytes]()
    await certificate.start()
    certificate.on_change.append(lambda: changes.append(certificate.pairs(())[0].chain))
    [initial] = certificate.pairs(())
    await until(lambda: len(delays) == 1)
    assert DAY.total_seconds() / 2 - 600 < delays[0] < DAY.total_seconds() / 2
    server.faults.refuse(503)
    wakes.put_nowait(None)
    await until(lambda: len(delays) == 2)
    assert certificate.pairs(()) == (initial,), "the previous certificate is kept"
    wakes.put_nowait(None)
    await until(lambda: len(changes) == 1)
    assert certificate.pairs(())[0] != initial
    assert len(signers.approved) == 2
    await certificate.stop()
    await client.close()


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"EXTERNAL_CA": "somebody"}, "EXTERNAL_CA: unknown value 'somebody', expected ISTIOD_RA_KUBERNETES_API"),
        ({"EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API"}, "EXTERNAL_CA: set K8S_SIGNER or CERT_SIGNER_DOMAIN"),
    ],
)
async def test_invalid_external_ca_settings_are_rejected(
    server: ApiServer, tmp_path: pathlib.Path, environ: dict[str, str], reason: str
) -> None:
    with pytest.raises(FlagError, match=reason):
        async with running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))):
            """Does not come to be."""


async def test_external_ca_requires_an_api_server(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FlagError, match="EXTERNAL_CA requires an API server"):
        async with running({**EXTERNAL, "K8S_SIGNER": NAME}, configDir=str(tmp_path)):
            """Does not come to be."""
