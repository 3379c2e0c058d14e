"""A control plane outside of the clusters that it serves, and what it reads of them."""

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
    own, west = ApiServer(), ApiServer()
    for server in (own, west):
        for plain in definitions():
            server.put(plain)
        await server.start()
    text = base64.b64encode(yaml.safe_dump(kubeconfig(west)).encode()).decode()
    metadata = {"name": "west", "namespace": SYSTEM, "labels": {"istio/multiCluster": "true"}}
    own.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"west": text}})
    west.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    yield own, west
    for server in (own, west):
        await server.stop()


def wanted_by(west: ApiServer, *clusters: str) -> None:
    """Says in a cluster whose control planes write there."""
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


def roots(server: ApiServer) -> Any:
    return server.get("", "configmaps", "shop", "istio-ca-root-cert")


async def test_roots_are_written_into_a_cluster_that_names_this_one(
    servers: tuple[ApiServer, ApiServer], tmp_path: pathlib.Path
) -> None:
    own, west = servers
    wanted_by(west, "other", "Kubernetes")
    async with running(
        {"EXTERNAL_ISTIOD": "true", "POD_NAME": "a"}, kubeconfig=str(write_kubeconfig(own, tmp_path / "config"))
    ) as it:
        await until(lambda: it.plane.ready and roots(west) is not None)
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
async def test_nothing_is_written_into_a_cluster_that_wants_nothing(
    servers: tuple[ApiServer, ApiServer], tmp_path: pathlib.Path, external: str, clusters: tuple[str, ...]
) -> None:
    own, west = servers
    own.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    wanted_by(west, *clusters)
    async with running({"EXTERNAL_ISTIOD": external}, kubeconfig=str(write_kubeconfig(own, tmp_path / "config"))) as it:
        await until(lambda: it.plane.ready and roots(own) is not None)
    assert [asked for asked in west.requests if asked.verb in ("create", "update", "patch")] == []


async def test_kinds_of_other_clusters_can_be_left_out(
    servers: tuple[ApiServer, ApiServer], tmp_path: pathlib.Path
) -> None:
    own, _ = servers
    entry = {"metadata": {"name": "vm", "namespace": "shop"}, "spec": {"address": "1.1.1.1"}}
    for server in servers:
        server.put({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", **entry})
        server.put(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cert", "namespace": "shop"}, "data": {}}
        )
    off = {"PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER": "false", "PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY": "false"}
    async with running(off, kubeconfig=str(write_kubeconfig(own, tmp_path / "config"))) as it:
        await until(lambda: it.plane.ready)
        assert [key.cluster for key, _ in WORKLOAD_ENTRY.table(it.plane.db).rows()] == ["Kubernetes"]
        assert {key.cluster for key, _ in SECRET.table(it.plane.db).rows()} == {"Kubernetes"}


async def test_one_namespace_alone_is_read(servers: tuple[ApiServer, ApiServer], tmp_path: pathlib.Path) -> None:
    own, _ = servers
    for namespace in ("shop", "other"):
        own.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        spec = {"hosts": ["a.com"], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"}
        metadata = {"name": "entry", "namespace": namespace}
        own.put({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": metadata, "spec": spec})
    async with running(
        {"ISTIO_WATCH_NAMESPACE": "shop"}, kubeconfig=str(write_kubeconfig(own, tmp_path / "config"))
    ) as it:
        await until(lambda: it.plane.ready and roots(own) is not None)
        assert {key.namespace for key, _ in SERVICE_ENTRY.table(it.plane.db).rows()} == {"shop"}
        assert {"shop", "other"} <= {key.name for key, _ in NAMESPACE.table(it.plane.db).rows()}
        await until(lambda: "status" in (own.get("networking.istio.io", "serviceentries", "shop", "entry") or {}))
    assert own.get("", "configmaps", "other", "istio-ca-root-cert") is None
