"""pilotctl workload prints WorkloadGroups, and writes the files of machines outside Kubernetes."""

from __future__ import annotations

import json
import pathlib
import stat
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from pilot.cli.pilotctl import main
from testing.kube.kube_access import server_with_crds
from tests.unit.cli.ctl.commands.test_install import Shell
from tests.unit.cli.ctl.conftest import Run

CREATE = ("workload", "group", "create", "--name", "vm", "-n", "shop", "-s", "tea", "-l", "app=tea,version=v2")
MESH = {"trustDomain": "td", "defaultConfig": {"meshId": "m1", "proxyMetadata": {"A": "x y", "B": "1"}}}


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


@pytest.fixture
async def shell(tmp_path: pathlib.Path, run: Run) -> AsyncIterator[Shell]:
    async with server_with_crds() as server:
        values = json.dumps({"global": {"multiCluster": {"clusterName": "east"}}})
        for suffix in ("", "-canary"):
            server.put(config_map("istio-system", f"istio{suffix}", mesh=yaml.safe_dump(MESH)))
            server.put(config_map("istio-system", f"istio-sidecar-injector{suffix}", values=values))
        server.put(config_map("shop", "istio-ca-root-cert", **{"root-cert.pem": "the root"}))
        metadata = {"name": "tea", "namespace": "shop"}
        server.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        group = yaml.safe_load(run(*CREATE, "-p", "http=8080,grpc=70", "--network", "n2"))
        group["spec"]["metadata"]["annotations"] = {
            "proxy.istio.io/config": "{statusPort: 15021, proxyMetadata: {B: '2'}}"
        }
        server.put(group)
        yield Shell(server, tmp_path)


def test_a_group_is_printed(run: Run) -> None:
    words = ("-a", "note=1", "--locality", "r/z", "-w", "3", "-p", "http=8080")
    assert yaml.safe_load(run(*CREATE, *words)) == {
        "apiVersion": "networking.istio.io/v1",
        "kind": "WorkloadGroup",
        "metadata": {"name": "vm", "namespace": "shop"},
        "spec": {
            "metadata": {"annotations": {"note": "1"}, "labels": {"app": "tea", "version": "v2"}},
            "template": {"locality": "r/z", "ports": {"http": 8080}, "serviceAccount": "tea", "weight": 3},
        },
    }
    assert main((*CREATE, "-p", "http")) == main((*CREATE, "-p", "http=x")) == 2


async def test_files_are_written_for_a_group_in_the_cluster(shell: Shell, tmp_path: pathlib.Path) -> None:
    words = ("--name", "vm", "-n", "shop", "--ingressIP", "10.9.9.9", "--internalIP", "10.8.8.8", "--autoregister")
    result = await shell("workload", "entry", "configure", *words, "-o", str(tmp_path / "vm"))
    assert result.exit_code == 0, result.output
    files = {path.name: path.read_text() for path in (tmp_path / "vm").iterdir()}
    assert (files["root-cert.pem"], files["hosts"]) == ("the root", "10.9.9.9 istiod.istio-system.svc\n")
    assert files["istio-token"].count(".") == 2
    assert stat.S_IMODE((tmp_path / "vm" / "istio-token").stat().st_mode) == 0o600
    config = yaml.safe_load(files["mesh.yaml"])["defaultConfig"]
    assert (config["meshId"], config["statusPort"], config["proxyMetadata"]["B"]) == ("m1", 15021, "2")
    assert json.loads(config["proxyMetadata"]["ISTIO_METAJSON_LABELS"]) == {
        "app": "tea",
        "version": "v2",
        "service.istio.io/canonical-name": "tea",
        "service.istio.io/canonical-revision": "v2",
    }
    environment = files["cluster.env"].splitlines()
    assert environment == sorted(environment)
    assert {
        "A='x y'",
        "CANONICAL_SERVICE=tea",
        "ISTIO_INBOUND_PORTS=70,8080",
        "ISTIO_LOCAL_EXCLUDE_PORTS=22,15090,15021",
        "ISTIO_META_AUTO_REGISTER_GROUP=vm",
        "ISTIO_META_CLUSTER_ID=east",
        "ISTIO_META_DNS_CAPTURE=true",
        "ISTIO_META_NETWORK=n2",
        "ISTIO_SERVICE=vm.shop",
        "ISTIO_SERVICE_CIDR='*'",
        "ISTIO_SVC_IP=10.8.8.8",
        "TRUST_DOMAIN=td",
    } <= set(environment)


@pytest.mark.parametrize(("words", "cluster"), [((), "Kubernetes"), (("--clusterID", "west"), "west")])
async def test_the_cluster_is_that_of_injected_proxies(
    shell: Shell, tmp_path: pathlib.Path, words: tuple[str, ...], cluster: str
) -> None:
    values = json.dumps({"global": {"multiCluster": {"clusterName": ""}}})
    shell.server.put(config_map("istio-system", "istio-sidecar-injector", values=values))
    command = ("workload", "entry", "configure", "--name", "vm", "-n", "shop", "-o", str(tmp_path / "vm"))
    result = await shell(*command, *words)
    assert result.exit_code == 0, result.output
    assert f"ISTIO_META_CLUSTER_ID={cluster}\n" in (tmp_path / "vm" / "cluster.env").read_text()


async def test_a_revision_and_a_file_are_used(shell: Shell, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text(
        "kind: WorkloadGroup\nmetadata: {name: vm, namespace: shop}\nspec: {template: {serviceAccount: tea}}\n"
    )
    words = ("-f", str(file), "-r", "canary", "--capture-dns=false", "-o", str(tmp_path / "vm"))
    result = await shell("workload", "entry", "configure", *words)
    assert "the file hosts is empty, because the east-west gateway has no address" in result.stderr, result.output
    config = yaml.safe_load((tmp_path / "vm" / "mesh.yaml").read_text())["defaultConfig"]
    assert config["discoveryAddress"] == "istiod-canary.istio-system.svc:15012"
    assert "ISTIO_META_DNS_CAPTURE" not in config["proxyMetadata"]
    environment = (tmp_path / "vm" / "cluster.env").read_text()
    assert "CA_ADDR=istiod-canary.istio-system.svc:15012\n" in environment
    assert "ISTIO_INBOUND_PORTS='*'\n" in environment


async def test_the_revision_is_that_of_the_default_tag(shell: Shell, tmp_path: pathlib.Path) -> None:
    """Release note 54518, for `workload entry configure`."""
    labels = {"istio.io/tag": "default", "istio.io/rev": "canary"}
    hook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    words = ("workload", "entry", "configure", "--name", "vm", "-n", "shop", "--ingressIP", "10.9.9.9")
    hosts = []
    for folder in ("before", "after"):
        result = await shell(*words, "-o", str(tmp_path / folder))
        assert result.exit_code == 0, result.output
        hosts.append((tmp_path / folder / "hosts").read_text())
        shell.server.put({**hook, "metadata": {"name": "istio-revision-tag-default", "labels": labels}, "webhooks": []})
    assert hosts == ["10.9.9.9 istiod.istio-system.svc\n", "10.9.9.9 istiod-canary.istio-system.svc\n"]


async def test_missing_objects_are_named(shell: Shell, tmp_path: pathlib.Path) -> None:
    words = ("workload", "entry", "configure", "-o", str(tmp_path / "vm"))
    assert "there is no WorkloadGroup shop/none" in (await shell(*words, "--name", "none", "-n", "shop")).stderr
    missing = await shell(*words, "--name", "vm", "-n", "shop", "-r", "other")
    assert "there is no ConfigMap istio-system/istio-sidecar-injector-other" in missing.stderr
    assert (await shell(*words)).exit_code == 2
    assert not (tmp_path / "vm").exists()
