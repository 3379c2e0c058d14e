"""A control plane outside its clusters, and restrictions of the objects it reads."""

from __future__ import annotations

import base64
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from pilot.config.kinds.istio import SERVICE_ENTRY, WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import NAMESPACE, SECRET
from pilot.kube.leader_lock import LEADER_ANNOTATION
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.control_planes.kube_plane import running
from testing.kube.kube_access import kubeconfig, until, write_kubeconfig

SYSTEM, ADMISSION = "istio-system", "admissionregistration.k8s.io"


@pytest.fixture
async def servers() -> AsyncIterator[tuple[ApiServer, ApiServer]]:
    home, west = ApiServer(), ApiServer()
    for server in (home, west):
        for plain in definitions():
            server.put(plain)
        await server.start()
    text = base64.b64encode(yaml.safe_dump(kubeconfig(west)).encode()).decode()
    metadata = {"name": "west", "namespace": SYSTEM, "labels": {"istio/multiCluster": "true"}}
    home.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"west": text}})
    west.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    yield home, west
    for server in (home, west):
        await server.stop()


def set_control_plane_clusters(west: ApiServer, *clusters: str) -> None:
    """Name the control-plane clusters in a remote cluster."""
    annotations = {"topology.istio.io/controlPlaneClusters": ",".join(clusters)}
    west.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "annotations": annotations}})
    webhook = {
        "name": "rev.namespace.sidecar-injector.istio.io",
        "clientConfig": {"url": "https://istiod.example.com/inject"},
    }
    metadata = {"name": "istio-sidecar-injector", "labels": {"istio.io/rev": "default"}}
    west.put(
        {
            "apiVersion": f"{ADMISSION}/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": metadata,
            "webhooks": [webhook],
        }
    )


def root_config_map(server: ApiServer) -> Any:
    return server.get("", "configmaps", "shop", "istio-ca-root-cert")


async def test_roots_are_written_to_a_cluster_that_names_the_control_plane(
    servers: tuple[ApiServer, ApiServer], tmp_path: pathlib.Path
) -> None:
    home, west = servers
    set_control_plane_clusters(west, "other", "Kubernetes")
    async with running(
        {"EXTERNAL_ISTIOD": "true", "POD_NAME": "a"}, kubeconfig=str(write_kubeconfig(home, tmp_path / "config"))
    ) as plane:
        await until(lambda: plane.plane.ready and root_config_map(west) is not None)
        await until(
            lambda: (
                "caBundle" in str(west.get(ADMISSION, "mutatingwebhookconfigurations", "", "istio-sidecar-injector"))
            )
        )
        lock = west.get("", "configmaps", SYSTEM, "istio-namespace-controller-election")
        assert lock is not None
        record = json.loads(lock["metadata"]["annotations"][LEADER_ANNOTATION])
        assert (record["holderIdentity"], record["holderKey"]) == ("a", "^default")


@pytest.mark.parametrize(("external", "clusters"), [("true", ("other",)), ("false", ("*",))])
async def test_other_clusters_are_not_written_to(
    servers: tuple[ApiServer, ApiServer], tmp_path: pathlib.Path, external: str, clusters: tuple[str, ...]
) -> None:
    home, west = servers
    home.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    set_control_plane_clusters(west, *clusters)
    async with running(
        {"EXTERNAL_ISTIOD": external}, kubeconfig=str(write_kubeconfig(home, tmp_path / "config"))
    ) as plane:
        await until(lambda: plane.plane.ready and root_config_map(home) is not None)
    assert [request for request in west.requests if request.verb in ("create", "update", "patch")] == []


async def test_kinds_of_remote_clusters_can_be_disabled(
    servers: tuple[ApiServer, ApiServer], tmp_path: pathlib.Path
) -> None:
    home, _ = servers
    entry = {"metadata": {"name": "vm", "namespace": "shop"}, "spec": {"address": "1.1.1.1"}}
    for server in servers:
        server.put({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", **entry})
        server.put(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cert", "namespace": "shop"}, "data": {}}
        )
    environ = {
        "PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER": "false",
        "PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY": "false",
    }
    async with running(environ, kubeconfig=str(write_kubeconfig(home, tmp_path / "config"))) as plane:
        await until(lambda: plane.plane.ready)
        assert [key.cluster for key, _ in WORKLOAD_ENTRY.table(plane.plane.db).rows()] == ["Kubernetes"]
        assert {key.cluster for key, _ in SECRET.table(plane.plane.db).rows()} == {"Kubernetes"}


async def test_watch_namespace_limits_the_configuration(
    servers: tuple[ApiServer, ApiServer], tmp_path: pathlib.Path
) -> None:
    home, _ = servers
    for namespace in ("shop", "other"):
        home.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        spec = {"hosts": ["a.com"], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"}
        metadata = {"name": "entry", "namespace": namespace}
        home.put({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": metadata, "spec": spec})
    async with running(
        {"ISTIO_WATCH_NAMESPACE": "shop"}, kubeconfig=str(write_kubeconfig(home, tmp_path / "config"))
    ) as plane:
        await until(lambda: plane.plane.ready and root_config_map(home) is not None)
        assert {key.namespace for key, _ in SERVICE_ENTRY.table(plane.plane.db).rows()} == {"shop"}
        assert {"shop", "other"} <= {key.name for key, _ in NAMESPACE.table(plane.plane.db).rows()}
        await until(lambda: "status" in (home.get("networking.istio.io", "serviceentries", "shop", "entry") or {}))
    assert home.get("", "configmaps", "other", "istio-ca-root-cert") is None
