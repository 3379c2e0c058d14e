"""A whole control plane on an API server: what proxies get, and when it is ready."""

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
from testing.kube.kube_access import defined_server, kubeconfig, until, write_kubeconfig
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
    async with defined_server() as made:
        yield made


def entry(name: str) -> str:
    return ENTRY.replace("NAME", name)


async def test_proxies_get_what_the_api_server_has_and_keep_it_while_that_is_gone(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    server.apply(entry("one") + "---" + MESH)
    async with running(kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as it:
        await until(lambda: it.plane.ready or it.task.done())
        assert it.plane.db.mesh.peek("mesh").trust_domain == "from.the.map"
        assert await it.clusters() == {"one"}
        server.apply(entry("two"))
        await until(lambda: len(SERVICE_ENTRY.table(it.plane.db)) == 2)
        assert await it.clusters() == {"one", "two"}
        await server.stop()
        assert await it.clusters() == {"one", "two"}, "a new proxy gets the last state"
        assert await it.ready_status() == 200
        server.store.delete(("networking.istio.io", "serviceentries"), ("shop", "one"))
        server.store.compact()
        await server.start()
        await until(lambda: len(SERVICE_ENTRY.table(it.plane.db)) == 1)
        assert await it.clusters() == {"two"}


async def test_it_is_not_ready_before_everything_has_been_read(server: ApiServer, tmp_path: pathlib.Path) -> None:
    path = write_kubeconfig(server, tmp_path / "config")
    await server.stop()
    async with running({"KUBECONFIG": str(path)}) as it:
        await until(lambda: it.plane.ports["HTTP"].number > 0)
        assert await it.ready_status() == 503
        await server.start()
        await until(lambda: it.plane.ready)
        assert await it.ready_status() == 200


async def test_beside_a_folder_only_what_runs_in_the_cluster_is_read(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.apply(
        entry("hers")
        + "---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{port: 80}]}\n"
    )
    path = write_kubeconfig(server, tmp_path / "config")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "his.yaml").write_text(entry("his"))
    async with running(kubeconfig=str(path), configDir=str(folder)) as it:
        await until(lambda: it.plane.ready)
        assert await it.clusters() == {"his"}
        assert len(SERVICE.table(it.plane.db)) == 1
    async with running({"KUBECONFIG": str(path)}, configDir=str(folder)) as it:
        await until(lambda: it.plane.ready)
        assert len(SERVICE.table(it.plane.db)) == 0, "the variable alone does not count beside a folder"


async def test_a_mesh_config_in_a_file_comes_before_the_config_map(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.apply(MESH)
    (tmp_path / "mesh").write_text("trustDomain: from.the.file")
    async with running(
        kubeconfig=str(write_kubeconfig(server, tmp_path / "config")), meshConfig=str(tmp_path / "mesh")
    ) as it:
        await until(lambda: it.plane.ready)
        assert it.plane.db.mesh.peek("mesh").trust_domain == "from.the.file"
        assert not [
            asked
            for asked in server.requests
            if asked.query.get("fieldSelector") == "metadata.name=istio" and asked.verb == "create"
        ]


@pytest.mark.parametrize("text", ["", "{", "kind: Config", "clusters: 5", None])
async def test_a_kubeconfig_that_makes_no_sense_ends_the_start(tmp_path: pathlib.Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config").write_text(text)
    flags = [f"--{name}=127.0.0.1:0" for name in ADDRESSES]
    plane = ControlPlane(load([f"--kubeconfig={tmp_path / 'config'}", "--ctrlz_port=0", *flags], {}).settings)
    with pytest.raises(StartError, match="kubeconfig"):
        await plane.run()


async def test_replicas_share_a_root_which_is_written_into_every_namespace(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    server.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---" + entry("one").replace("NONE", "DNS"))
    path = str(write_kubeconfig(server, tmp_path / "config"))

    def roots() -> str:
        found = server.get("", "configmaps", "shop", "istio-ca-root-cert")
        return found["data"]["root-cert.pem"] if found is not None else ""

    async with running({"POD_NAME": "a"}, kubeconfig=path) as one, running({"POD_NAME": "b"}, kubeconfig=path) as two:
        await until(lambda: one.plane.ready and two.plane.ready)
        signers = [plane.security.authority.authority.signer for plane in (one.plane, two.plane)]
        assert signers[0].certificate == signers[1].certificate
        await until(lambda: roots() == signers[0].roots_pem.decode())
        await until(lambda: "status" in (server.get("networking.istio.io", "serviceentries", "shop", "one") or {}))
    lock = server.get("", "configmaps", "istio-system", "istio-ip-autoallocate")
    assert lock is not None
    assert json.loads(lock["metadata"]["annotations"][LEADER_ANNOTATION])["holderIdentity"] == ""
    async with running(kubeconfig=path) as again:
        await until(lambda: again.plane.ready)
        assert again.plane.security.authority.authority.signer.certificate == signers[0].certificate


async def test_another_cluster_is_read_when_a_secret_names_it(server: ApiServer, tmp_path: pathlib.Path) -> None:
    west = ApiServer()
    await west.start()
    west.apply("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{port: 80}]}\n")
    text = base64.b64encode(yaml.safe_dump(kubeconfig(west)).encode()).decode()
    metadata = {"name": "west", "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"west": text}}
    server.put(secret)
    async with running(kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as it:
        await until(lambda: it.plane.ready)
        assert [key for key, _ in SERVICE.table(it.plane.db).rows()] == [RegistryKey("west", "shop", "web")], (
            "ready only when it has been read"
        )
        server.delete(secret)
        await until(lambda: not len(SERVICE.table(it.plane.db)))
    await west.stop()


@pytest.mark.parametrize("named", [True, False])
async def test_configuration_is_read_from_the_api_server_where_the_mesh_config_names_it_or_nothing_else(
    server: ApiServer, tmp_path: pathlib.Path, named: bool
) -> None:
    server.apply(entry("one"))
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "two.yaml").write_text(
        entry("two") + "---" + entry("one").replace("one.example.com", "other.example.com")
    )
    sources = f"[{{address: 'k8s://'}}, {{address: 'fs://{folder}'}}]" if named else f"[{{address: 'fs://{folder}'}}]"
    (tmp_path / "mesh").write_text(f"configSources: {sources}")
    async with running(
        kubeconfig=str(write_kubeconfig(server, tmp_path / "config")), meshConfig=str(tmp_path / "mesh")
    ) as it:
        await until(lambda: it.plane.ready or it.task.done())
        rows = {key.name: row.spec.hosts[0] for key, row in SERVICE_ENTRY.table(it.plane.db).rows()}
        assert rows.keys() == {"one", "two"}
        assert (rows["one"] == "other.example.com") is not named
        assert it.plane.api_servers is not None
        assert any(kind.name == "ServiceEntry" for kind in it.plane.api_servers.source.followed) is named
        assert any(kind.name == "Service" for kind in it.plane.api_servers.source.followed)


def cacerts(folder: pathlib.Path, *more: str) -> dict[str, Any]:
    """A Secret of the files of a folder, and further keys."""
    files = {path.name: base64.b64encode(path.read_bytes()).decode() for path in folder.iterdir()}
    return make_secret("cacerts", {**files, **dict.fromkeys(more, "")})


def make_secret(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "istio-system"}, "data": data}


async def test_a_signing_certificate_of_the_api_server_is_plugged_in(server: ApiServer, tmp_path: pathlib.Path) -> None:
    signer = root(4, now=datetime.datetime.now(datetime.UTC))
    (tmp_path / "made").mkdir()
    write_plugged_in(tmp_path / "made", signer)
    server.put(cacerts(tmp_path / "made"))
    folder = tmp_path / "etc" / "cacerts"
    environ, config = (
        {"ROOT_CA_DIR": str(folder), "USE_REMOTE_CERTS": "true"},
        str(write_kubeconfig(server, tmp_path / "config")),
    )
    for _ in range(2):  # the second one finds the files and asks nobody
        async with running(environ, kubeconfig=config) as it:
            await until(lambda: it.plane.ready or it.task.done())
            assert issuing(it) == signer.certificate
        server.put(make_secret("cacerts", {"ca-cert.pem": "", "ca-key.pem": ""}))
    assert (folder / "ca-key.pem").stat().st_mode & 0o777 == 0o600


async def test_a_root_that_is_kept_in_a_mounted_secret_is_no_plugged_in_one(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "cacerts"
    environ, config = (
        {"ROOT_CA_DIR": str(folder), "USE_CACERTS_FOR_SELF_SIGNED_CA": "true"},
        str(write_kubeconfig(server, tmp_path / "config")),
    )
    issued = []
    for _ in range(2):
        async with running(environ, kubeconfig=config) as it:
            await until(lambda: it.plane.ready or it.task.done())
            issued.append(issuing(it))
        kept = server.get("", "secrets", "istio-system", "cacerts")
        assert kept is not None
        folder.mkdir(exist_ok=True)
        for name, content in kept["data"].items():  # as the kubelet mounts it
            (folder / name).write_bytes(base64.b64decode(content))
    assert issued[0] == issued[1]
    assert server.get("", "secrets", "istio-system", "istio-ca-secret") is None


def issuing(it: Plane) -> x509.Certificate:
    """The signing certificate of a control plane."""
    assert it.plane.security.authority is not None
    assert it.plane.security.authority.authority is not None
    return it.plane.security.authority.authority.signer.certificate


async def test_roots_are_in_a_trust_bundle_where_the_settings_say_so(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    environ = {"ENABLE_CLUSTER_TRUST_BUNDLE_API": "true"}
    async with running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as it:
        await until(
            lambda: (
                server.get("certificates.k8s.io", "clustertrustbundles", "", "istio.io:istiod-ca:root-cert") is not None
            )
        )
        await until(lambda: server.get("", "configmaps", "shop", "istio-ca-crl") is not None)
        found = server.get("certificates.k8s.io", "clustertrustbundles", "", "istio.io:istiod-ca:root-cert")
        assert found is not None
        assert x509.load_pem_x509_certificate(found["spec"]["trustBundle"].encode()) == issuing(it)
    assert server.get("", "configmaps", "shop", "istio-ca-root-cert") is None


@pytest.mark.parametrize("read", [True, False])
async def test_exports_of_services_are_read_where_the_settings_obey_them(
    server: ApiServer, tmp_path: pathlib.Path, read: bool
) -> None:
    server.apply(entry("one"))
    server.put(
        {
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "ServiceExport",
            "metadata": {"name": "web", "namespace": "shop"},
        }
    )
    environ = {"ENABLE_MCS_SERVICE_DISCOVERY": "true"} if read else {}
    async with running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))) as it:
        await until(lambda: it.plane.ready or it.task.done())
        assert [key for key, _ in SERVICE_EXPORT.table(it.plane.db).rows()] == (
            [RegistryKey("Kubernetes", "shop", "web")] if read else []
        )
    assert any(asked.resource.group == "multicluster.x-k8s.io" for asked in server.requests) == read


async def test_services_are_exported_but_those_that_stay_in_their_cluster(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    def exported() -> set[str]:
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
    server.faults.refuse(503, times=2, concerns=lambda asked: asked.resource.id == EXPORTS and asked.verb == "create")
    async with running(
        {"ENABLE_MCS_AUTO_EXPORT": "true"}, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))
    ) as it:
        await until(lambda: exported() == {"shop/web", "shop/there"} or it.task.done())
        server.put(service("later", "shop"))
        await until(lambda: "shop/later" in exported())
    owner = (server.get(*EXPORTS, "shop", "web") or {})["metadata"]["ownerReferences"]
    web = server.get("", "services", "shop", "web")
    assert web is not None
    assert [(one["kind"], one["name"], one["uid"]) for one in owner] == [("Service", "web", web["metadata"]["uid"])]
    assert exported() == {"shop/web", "shop/there", "shop/later"}
    assert server.faults.spent


EXPORTS = ("multicluster.x-k8s.io", "serviceexports")
