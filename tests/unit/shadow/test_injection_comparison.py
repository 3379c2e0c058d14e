"""Pods of an API server, as another control plane has injected them, beside what this control plane makes of them."""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.kube.object_client import ObjectClient
from pilot.shadow.injection_comparison import InjectionReport, compare_injection
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of
from tests.unit.shadow.reference_mesh import mesh_of
from webhook.defaults.injector_config import default_config
from webhook.inject.injection import inject
from webhook.inject.owner import owner_of
from webhook.inject.request import InjectionRequest

OWNER = yaml.safe_load("""
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-6d9f, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: example.com/app, ports: [{containerPort: 8080}]}]}
""")
CONTROLLER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d9f", "uid": "u", "controller": True}


def injected_pod() -> dict[str, Any]:
    """Return a Pod of the owner as injected, with some of the defaults that an API server adds."""
    template = copy.deepcopy(OWNER["spec"]["template"])
    template["metadata"] |= {"namespace": "shop", "generateName": "web-6d9f-", "ownerReferences": [CONTROLLER]}
    template["metadata"]["labels"] |= {"pod-template-hash": "6d9f"}
    mesh = MeshConfig()
    request = InjectionRequest(template, owner_of(template), default_config(), mesh, mesh.default_config, "default")
    pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(inject(request))}
    pod["metadata"]["name"] = "web-6d9f-abcde"
    pod["spec"]["dnsPolicy"] = "ClusterFirst"
    for volume in pod["spec"]["volumes"]:
        for item in volume.get("downwardAPI", {}).get("items", ()):
            item["fieldRef"]["apiVersion"] = "v1"
    pod["spec"]["volumes"].append({"name": "kube-api-access-x", "projected": {}})
    for container in pod["spec"]["containers"]:
        container["imagePullPolicy"] = "Always"
        container.setdefault("volumeMounts", []).append({"name": "kube-api-access-x", "mountPath": "/var/run/x"})
    return pod


def proxy_of(pod: dict[str, Any]) -> dict[str, Any]:
    return next(container for container in pod["spec"]["containers"] if container["name"] == "istio-proxy")


@pytest.fixture
async def cluster() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    server.put(OWNER)
    yield server
    await server.stop()


async def compare(cluster: ApiServer, *pods: dict[str, Any], revision: str = "") -> InjectionReport:
    client = client_of(cluster)
    objects = ObjectClient(client, "shadow", random.Random(), dry_run=True)
    try:
        return await compare_injection(objects, mesh_of(""), pods, "istio-system", revision)
    finally:
        await client.close()


async def test_defaults_of_the_api_server_are_no_difference(cluster: ApiServer) -> None:
    report = await compare(cluster, injected_pod())
    assert (report.owners, report.equal, report.differences, report.skipped) == (1, 1, [], {})


async def test_white_space_in_json_is_no_difference(cluster: ApiServer) -> None:
    pod = injected_pod()
    ports = next(one for one in proxy_of(pod)["env"] if one["name"] == "ISTIO_META_POD_PORTS")
    ports["value"] = ports["value"].replace("[", "[\n    ")
    assert (await compare(cluster, pod)).equal == 1


async def test_changed_fields_and_surplus_items_are_found(cluster: ApiServer) -> None:
    pod = injected_pod()
    proxy_of(pod)["image"] = "example.com/proxyv2"
    proxy_of(pod)["env"].append({"name": "EXTRA", "value": "1"})
    next(one for one in proxy_of(pod)["env"] if one["name"] == "CA_ADDR")["value"] = "other:15012"
    report = await compare(cluster, pod, pod)
    assert [(one.verdict, one.path, one.pods) for one in report.differences] == [
        ("unexplained", "spec.containers[].env[]", 1),
        ("unexplained", "spec.containers[].env[].value", 1),
        ("intended", "spec.containers[].image", 1),
    ]
    assert report.differences[1].reference == "other:15012"
    assert (report.owners, report.equal) == (1, 0)


async def test_pods_without_an_owner_that_exists_are_named(cluster: ApiServer) -> None:
    cluster.delete(OWNER)
    report = await compare(cluster, injected_pod())
    assert (report.owners, list(report.skipped)) == (0, ["shop/web-6d9f-abcde"])


async def test_pods_that_were_not_injected_are_not_compared(cluster: ApiServer) -> None:
    pod = injected_pod()
    del pod["metadata"]["annotations"]["sidecar.istio.io/status"]
    assert (await compare(cluster, pod)) == InjectionReport(0, 0, [], {})


async def test_pods_of_another_revision_are_named(cluster: ApiServer) -> None:
    """The revision and the addresses of another control plane are no difference between the two that are compared."""
    pod = injected_pod()
    pod["metadata"]["annotations"]["istio.io/rev"] = "canary"
    report = await compare(cluster, pod)
    assert report == InjectionReport(
        0, 0, [], {"1 workload of the revision canary": "-r canary compares them with its control plane"}
    )


async def test_pods_of_the_named_revision_are_compared(cluster: ApiServer) -> None:
    """The label of the revision and the address of its control plane follow from the values of its injector."""
    values = yaml.safe_dump({"revision": "canary", "global": {"istioNamespace": "istio-system"}})
    meta = {"name": "istio-sidecar-injector-canary", "namespace": "istio-system"}
    cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"values": values}})
    pod = injected_pod()
    pod["metadata"]["annotations"]["istio.io/rev"] = "canary"
    (address,) = (row for row in proxy_of(pod)["env"] if row["name"] == "CA_ADDR")
    address["value"] = "istiod-canary.istio-system.svc:15012"
    assert await compare(cluster, pod, revision="canary") == InjectionReport(1, 1, [], {})
