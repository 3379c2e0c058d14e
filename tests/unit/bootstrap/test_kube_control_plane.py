"""A whole control plane with an API server."""

from __future__ import annotations

import base64
import datetime
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from cryptography import x509

from pilot.bootstrap import ControlPlane, StartError
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE, SERVICE_EXPORT
from pilot.config.object import RegistryKey
from pilot.kube.leader_lock import LEADER_ANNOTATION
from pilot.settings.parse import load
from testing.apiserver.server import ApiServer
from testing.control_planes.kube_plane import ADDRESSES, Plane, running
from testing.kube.kube_access import kubeconfig, server_with_crds, until, write_kubeconfig
from testing.security.certificates import root, write_plugged_in

pytestmark = pytest.mark.slow

ENTRY = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: NAME, namespace: shop}
spec: {hosts: [NAME.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}
"""
MESH = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "trustDomain: from.the.map"}
"""


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with server_with_crds() as api_server:
        yield api_server


def entry(name: str) -> str:
    return ENTRY.replace("NAME", name)


async def test_configuration_survives_an_api_server_outage(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.apply(entry("one") + "---" + MESH)
    async with running(kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as process:
        await until(lambda: process.plane.ready or process.task.done())
        assert process.plane.db.mesh.peek("mesh").trust_domain == "from.the.map"
        assert await process.clusters() == {"one"}
        server.apply(entry("two"))
        await until(lambda: len(SERVICE_ENTRY.table(process.plane.db)) == 2)
        assert await process.clusters() == {"one", "two"}
        await server.stop()
        assert await process.clusters() == {"one", "two"}, "a new proxy receives the last state"
        assert await process.ready_status() == 200
        server.store.delete(("networking.istio.io", "serviceentries"), ("shop", "one"))
        server.store.compact()
        await server.start()
        await until(lambda: len(SERVICE_ENTRY.table(process.plane.db)) == 1)
        assert await process.clusters() == {"two"}


async def test_large_objects_are_read_at_start_and_invalid_ones_rejected(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    labels = ", ".join(f"n{number}: v" for number in range(1000))
    endpoints = ", ".join(f"{{address: 10.0.0.1, labels: {{{labels}}}}}" for _ in range(10))
    resolution = f"resolution: STATIC, endpoints: [{endpoints}]"
    server.apply(entry("large").replace("resolution: NONE", resolution))
    lists = ", ".join(["[]"] * 30_000)
    hostile = entry("hostile").replace("namespace: shop", "namespace: other")
    server.apply(hostile.replace("ports", f"subjectAltNames: [{lists}], ports"))
    server.apply(entry("small"))
    async with running(kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as process:
        await until(lambda: process.plane.ready or process.task.done())
        assert await process.clusters() == {"large", "small"}
        assert {(p.object.name, p.code) for p in process.plane.problems} >= {("hostile", "wrong-type")}


async def test_readiness_waits_for_the_first_sync(server: ApiServer, tmp_path: pathlib.Path) -> None:
    path = write_kubeconfig(server, tmp_path / "config")
    await server.stop()
    async with running({"KUBECONFIG": str(path)}) as process:
        await until(lambda: process.plane.ports["HTTP"].number > 0)
        assert await process.ready_status() == 503
        await server.start()
        await until(lambda: process.plane.ready)
        assert await process.ready_status() == 200


async def test_only_cluster_registry_is_read_with_a_folder(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.apply(
        entry("remote")
        + "---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{port: 80}]}\n"
    )
    path = write_kubeconfig(server, tmp_path / "config")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "local.yaml").write_text(entry("local"))
    async with running(kubeconfig=str(path), configDir=str(folder)) as process:
        await until(lambda: process.plane.ready)
        assert await process.clusters() == {"local"}
        assert len(SERVICE.table(process.plane.db)) == 1
    async with running({"KUBECONFIG": str(path)}, configDir=str(folder)) as process:
        await until(lambda: process.plane.ready)
        assert len(SERVICE.table(process.plane.db)) == 0, "KUBECONFIG is ignored with --configDir"


async def test_mesh_config_file_wins_over_the_config_map(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.apply(MESH)
    (tmp_path / "mesh").write_text("trustDomain: from.the.file")
    async with running(
        kubeconfig=str(write_kubeconfig(server, tmp_path / "config")), meshConfig=str(tmp_path / "mesh")
    ) as process:
        await until(lambda: process.plane.ready)
        assert process.plane.db.mesh.peek("mesh").trust_domain == "from.the.file"
        assert not [
            request
            for request in server.requests
            if request.query.get("fieldSelector") == "metadata.name=istio" and request.verb == "create"
        ]


@pytest.mark.parametrize("text", ["", "{", "kind: Config", "clusters: 5", None])
async def test_invalid_kubeconfig_aborts_the_start(tmp_path: pathlib.Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config").write_text(text)
    flags = [f"--{name}=127.0.0.1:0" for name in ADDRESSES]
    plane = ControlPlane(load([f"--kubeconfig={tmp_path / 'config'}", "--ctrlz_port=0", *flags], {}).settings)
    with pytest.raises(StartError, match="kubeconfig"):
        await plane.run()


async def test_replicas_share_a_root_and_publish_it_to_namespaces(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---" + entry("one").replace("NONE", "DNS"))
    path = str(write_kubeconfig(server, tmp_path / "config"))

    def roots() -> str:
        config_map = server.get("", "configmaps", "shop", "istio-ca-root-cert")
        return config_map["data"]["root-cert.pem"] if config_map is not None else ""

    async with (
        running({"POD_NAME": "a"}, kubeconfig=path) as first,
        running({"POD_NAME": "b"}, kubeconfig=path) as second,
    ):
        await until(lambda: first.plane.ready and second.plane.ready)
        signers = [plane.security.authority.authority.signer for plane in (first.plane, second.plane)]
        assert signers[0].certificate == signers[1].certificate
        await until(lambda: roots() == signers[0].roots_pem.decode())
        await until(lambda: "status" in (server.get("networking.istio.io", "serviceentries", "shop", "one") or {}))
    lock = server.get("", "configmaps", "istio-system", "istio-ip-autoallocate")
    assert lock is not None
    assert json.loads(lock["metadata"]["annotations"][LEADER_ANNOTATION])["holderIdentity"] == ""
    async with running(kubeconfig=path) as third:
        await until(lambda: third.plane.ready)
        assert third.plane.security.authority.authority.signer.certificate == signers[0].certificate


async def test_remote_cluster_secret_adds_a_cluster(server: ApiServer, tmp_path: pathlib.Path) -> None:
    west = ApiServer()
    await west.start()
    west.apply("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{port: 80}]}\n")
    text = base64.b64encode(yaml.safe_dump(kubeconfig(west)).encode()).decode()
    metadata = {"name": "west", "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"west": text}}
    server.put(secret)
    async with running(kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as process:
        await until(lambda: process.plane.ready)
        assert [key for key, _ in SERVICE.table(process.plane.db).rows()] == [RegistryKey("west", "shop", "web")], (
            "readiness waits for the remote cluster"
        )
        server.delete(secret)
        await until(lambda: not len(SERVICE.table(process.plane.db)))
    await west.stop()


@pytest.mark.parametrize("has_kubernetes_source", [True, False])
async def test_config_sources_decide_on_reading_the_api_server(
    server: ApiServer, tmp_path: pathlib.Path, has_kubernetes_source: bool
) -> None:
    server.apply(entry("one"))
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "two.yaml").write_text(
        entry("two") + "---" + entry("one").replace("one.example.com", "other.example.com")
    )
    sources = (
        f"[{{address: 'k8s://'}}, {{address: 'fs://{folder}'}}]"
        if has_kubernetes_source
        else f"[{{address: 'fs://{folder}'}}]"
    )
    (tmp_path / "mesh").write_text(f"configSources: {sources}")
    async with running(
        kubeconfig=str(write_kubeconfig(server, tmp_path / "config")), meshConfig=str(tmp_path / "mesh")
    ) as process:
        await until(lambda: process.plane.ready or process.task.done())
        rows = {key.name: row.spec.hosts[0] for key, row in SERVICE_ENTRY.table(process.plane.db).rows()}
        assert rows.keys() == {"one", "two"}
        assert (rows["one"] == "other.example.com") is not has_kubernetes_source
        assert process.plane.api_servers is not None
        assert (
            any(kind.name == "ServiceEntry" for kind in process.plane.api_servers.source.watches)
            is has_kubernetes_source
        )
        assert any(kind.name == "Service" for kind in process.plane.api_servers.source.watches)


def cacerts(folder: pathlib.Path, *more: str) -> dict[str, Any]:
    """A Secret with the files of a folder and additional empty keys."""
    files = {path.name: base64.b64encode(path.read_bytes()).decode() for path in folder.iterdir()}
    return make_secret("cacerts", {**files, **dict.fromkeys(more, "")})


def make_secret(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "istio-system"}, "data": data}


async def test_cacerts_secret_provides_the_signing_certificate(server: ApiServer, tmp_path: pathlib.Path) -> None:
    signer = root(4, now=datetime.datetime.now(datetime.UTC))
    (tmp_path / "files").mkdir()
    write_plugged_in(tmp_path / "files", signer)
    server.put(cacerts(tmp_path / "files"))
    folder = tmp_path / "etc" / "cacerts"
    environ, config = (
        {"ROOT_CA_DIR": str(folder), "USE_REMOTE_CERTS": "true"},
        str(write_kubeconfig(server, tmp_path / "config")),
    )
    for _ in range(2):  # the second start reuses the files
        async with running(environ, kubeconfig=config) as process:
            await until(lambda: process.plane.ready or process.task.done())
            assert issuing(process) == signer.certificate
        server.put(make_secret("cacerts", {"ca-cert.pem": "", "ca-key.pem": ""}))
    assert (folder / "ca-key.pem").stat().st_mode & 0o777 == 0o600


async def test_mounted_self_signed_root_is_not_plugged_in(server: ApiServer, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cacerts"
    environ, config = (
        {"ROOT_CA_DIR": str(folder), "USE_CACERTS_FOR_SELF_SIGNED_CA": "true"},
        str(write_kubeconfig(server, tmp_path / "config")),
    )
    certificates = []
    for _ in range(2):
        async with running(environ, kubeconfig=config) as process:
            await until(lambda: process.plane.ready or process.task.done())
            certificates.append(issuing(process))
        secret = server.get("", "secrets", "istio-system", "cacerts")
        assert secret is not None
        folder.mkdir(exist_ok=True)
        for name, content in secret["data"].items():  # as the kubelet mounts it
            (folder / name).write_bytes(base64.b64decode(content))
    assert certificates[0] == certificates[1]
    assert server.get("", "secrets", "istio-system", "istio-ca-secret") is None


def issuing(process: Plane) -> x509.Certificate:
    """Return the signing certificate of a control plane."""
    assert process.plane.security.authority is not None
    assert process.plane.security.authority.authority is not None
    return process.plane.security.authority.authority.signer.certificate


async def test_trust_bundle_holds_the_roots_if_enabled(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    environ = {"ENABLE_CLUSTER_TRUST_BUNDLE_API": "true"}
    async with running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as process:
        await until(
            lambda: (
                server.get("certificates.k8s.io", "clustertrustbundles", "", "istio.io:istiod-ca:root-cert") is not None
            )
        )
        await until(lambda: server.get("", "configmaps", "shop", "istio-ca-crl") is not None)
        bundle = server.get("certificates.k8s.io", "clustertrustbundles", "", "istio.io:istiod-ca:root-cert")
        assert bundle is not None
        assert x509.load_pem_x509_certificate(bundle["spec"]["trustBundle"].encode()) == issuing(process)
    assert server.get("", "configmaps", "shop", "istio-ca-root-cert") is None


@pytest.mark.parametrize("enabled", [True, False])
async def test_service_exports_are_read_only_with_mcs_discovery(
    server: ApiServer, tmp_path: pathlib.Path, enabled: bool
) -> None:
    server.apply(entry("one"))
    server.put(
        {
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "ServiceExport",
            "metadata": {"name": "web", "namespace": "shop"},
        }
    )
    environ = {"ENABLE_MCS_SERVICE_DISCOVERY": "true"} if enabled else {}
    async with running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as process:
        await until(lambda: process.plane.ready or process.task.done())
        assert [key for key, _ in SERVICE_EXPORT.table(process.plane.db).rows()] == (
            [RegistryKey("Kubernetes", "shop", "web")] if enabled else []
        )
    assert any(request.resource.group == "multicluster.x-k8s.io" for request in server.requests) == enabled


async def test_service_exports_are_read_from_the_group_of_the_cluster(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    server.apply(SERVICE_EXPORTS)
    server.put(
        {"apiVersion": "net.gke.io/v1", "kind": "ServiceExport", "metadata": {"name": "web", "namespace": "shop"}}
    )
    environ = {"ENABLE_MCS_SERVICE_DISCOVERY": "true", "MCS_API_GROUP": "net.gke.io", "MCS_API_VERSION": "v1"}
    async with running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as process:
        await until(lambda: process.plane.ready or process.task.done())
        assert [key for key, _ in SERVICE_EXPORT.table(process.plane.db).rows()] == [
            RegistryKey("Kubernetes", "shop", "web")
        ]


async def test_mcs_auto_export_skips_cluster_local_services(server: ApiServer, tmp_path: pathlib.Path) -> None:
    def exports() -> set[str]:
        return {f"{namespace}/{name}" for namespace, name in server.store.collection(EXPORTS).objects}

    def service(name: str, namespace: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"ports": [{"port": 80}]},
        }

    local = "{serviceSettings: [{settings: {clusterLocal: true}, hosts: [own.shop.svc.cluster.local]}]}"
    server.apply(MESH.replace("trustDomain: from.the.map", local))
    for name, namespace in (("kept", "kube-system"), ("own", "shop"), ("web", "shop")):
        server.put(service(name, namespace))
    server.put(
        {
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "ServiceExport",
            "metadata": {"name": "there", "namespace": "shop"},
        }
    )
    server.put(service("there", "shop"))
    server.faults.refuse(
        503, times=2, matching=lambda request: request.resource.id == EXPORTS and request.verb == "create"
    )
    async with running(
        {"ENABLE_MCS_AUTO_EXPORT": "true"}, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))
    ) as process:
        await until(lambda: exports() == {"shop/web", "shop/there"} or process.task.done())
        server.put(service("later", "shop"))
        await until(lambda: "shop/later" in exports())
    owner = (server.get(*EXPORTS, "shop", "web") or {})["metadata"]["ownerReferences"]
    web = server.get("", "services", "shop", "web")
    assert web is not None
    assert [(reference["kind"], reference["name"], reference["uid"]) for reference in owner] == [
        ("Service", "web", web["metadata"]["uid"])
    ]
    assert exports() == {"shop/web", "shop/there", "shop/later"}
    assert server.faults.spent


SERVICE_EXPORTS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: serviceexports.net.gke.io}
spec:
  group: net.gke.io
  names: {kind: ServiceExport, listKind: ServiceExportList, plural: serviceexports, singular: serviceexport}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""
EXPORTS = ("multicluster.x-k8s.io", "serviceexports")
