"""Each value of a chart has an effect: on the rendered objects, or on the Pods and gateways that istiod makes."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from deploy.chart.chart import Chart, installation_folder, read_chart
from deploy.chart.render import render
from deploy.generated import CHARTS
from pilot.config.mesh.mesh_config import MeshConfig
from webhook.gateway.render import GatewayToRender, render_gateway
from webhook.inject.config import InjectorConfig, decode_config
from webhook.inject.injection import inject
from webhook.inject.owner import WorkloadOwner
from webhook.inject.request import InjectionRequest

pytestmark = pytest.mark.slow

Values = dict[str, Any]
SYSTEM = "istio-system"
WITHOUT_EFFECT = {
    "base base.enableCRDTemplates": "the definitions are always templates; istioctl installs them regardless of it",
    "istiod base.enableIstioConfigCRDs": "the base chart has the definitions; accepted because Istio's chart has it",
    "cni ambient.configDir": "accepted because Istio's chart has it, which does not use it either",
}


class Change(NamedTuple):
    """Another value for a setting, and the values that it needs to have an effect."""

    value: Any
    needs: Values = {}


TWO_REPLICAS = {"autoscaleMin": 2}
TWO_INGRESS = {"gateways": {"istio-ingressgateway": {"autoscaleMin": 2}}}
TWO_EGRESS = {"gateways": {"istio-egressgateway": {"autoscaleMin": 2}}}
OTHER_CLUSTER = {"istiodRemote": {"enabled": True}}
NETWORK = {"networkGateway": "n1"}
UTILIZATION = {"targetAverageUtilization": 70}
SELECTOR = {"matchLabels": {"a": "b"}}
NO_RESOURCES = {"resources": None}
CHANGES = {
    "base base.excludedCRDs": Change(["sidecars.networking.istio.io"]),
    "istiod variant": Change("debug", {"hub": "h"}),
    "istiod memory": Change(UTILIZATION),
    "istiod replicaCount": Change(3, {"autoscaleEnabled": False}),
    "istiod pdb.minAvailable": Change(2, TWO_REPLICAS),
    "istiod pdb.unhealthyPodEvictionPolicy": Change("AlwaysAllow", TWO_REPLICAS),
    "istiod taint.name": Change("t", {"taint": {"enabled": True}}),
    "istiod cni.provider": Change("multus", {"cni": {"enabled": True}}),
    "istiod revisionTags": Change(["canary"]),
    "istiod sidecarInjectorWebhook.neverInjectSelector": Change([SELECTOR]),
    "istiod sidecarInjectorWebhook.alwaysInjectSelector": Change([SELECTOR]),
    "istiod sidecarInjectorWebhook.defaultTemplates": Change(["sidecar", "grpc-agent"]),
    "istiod gatewayClasses": Change({"istio": {"deployment": {"spec": {"replicas": 2}}}}),
    "istiod gateways.securityContext": Change({"runAsUser": 7}),
    "istiod gateways.seccompProfile": Change({"type": "Unconfined"}),
    "istiod istiodRemote.enabledLocalInjectorIstiod": Change(True, OTHER_CLUSTER),
    "istiod global.defaultPodDisruptionBudget.enabled": Change(False, TWO_REPLICAS),
    "istiod global.defaultResources.requests.cpu": Change("20m", NO_RESOURCES),
    "istiod global.configCluster": Change(True, OTHER_CLUSTER),
    "istiod global.remotePilotAddress": Change("192.0.2.1", OTHER_CLUSTER),
    "istiod global.caName": Change("GkeWorkloadCertificate"),
    "istiod global.certSigners": Change(["s/*"], {"env": {"EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API"}}),
    **{
        f"istiod global.{kind}.resources.{bound}": Change("7M")
        for kind in ("proxy", "waypoint")
        for bound in ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
    },
    "istiod global.proxy.includeIPRanges": Change("10.0.0.0/8"),
    "istiod global.proxy.excludeIPRanges": Change("10.0.0.0/8"),
    "istiod global.proxy.includeInboundPorts": Change("80"),
    "istiod global.proxy.excludeInboundPorts": Change("81"),
    "istiod global.proxy.includeOutboundPorts": Change("82"),
    "istiod global.proxy.excludeOutboundPorts": Change("83"),
    "istiod global.proxy.autoInject": Change("disabled"),
    "istiod global.proxy.seccompProfile": Change({"type": "RuntimeDefault"}),
    "istiod global.proxy.statusPort": Change(15030),
    "istiod global.waypoint.tolerations": Change([{"key": "k"}]),
    "istiod global.waypoint.topologySpreadConstraints": Change([{"maxSkew": 1}]),
    "gateway replicaCount": Change(3, {"autoscaling": {"enabled": False}}),
    "gateway autoscaling.targetMemoryUtilizationPercentage": Change(70),
    "gateway podDisruptionBudget": Change({"maxUnavailable": 1}, {"autoscaling": {"minReplicas": 2}}),
    "ingress gateways.istio-ingressgateway.memory": Change(UTILIZATION),
    "egress gateways.istio-egressgateway.memory": Change(UTILIZATION),
    "ingress global.arch": Change({"arm64": 2}),
    "egress global.arch": Change({"arm64": 2}),
    "ingress global.defaultPodDisruptionBudget.enabled": Change(False, TWO_INGRESS),
    "egress global.defaultPodDisruptionBudget.enabled": Change(False, TWO_EGRESS),
    "ingress global.defaultResources.requests.cpu": Change(
        "20m", {"gateways": {"istio-ingressgateway": {"resources": None}}}
    ),
    "egress global.defaultResources.requests.cpu": Change(
        "20m", {"gateways": {"istio-egressgateway": {"resources": None}}}
    ),
    "cni provider": Change("multus"),
    "cni istioOwnedCNIConfigFileName": Change("own.conflist", {"istioOwnedCNIConfig": True}),
    "cni ambient.shareHostNetworkNamespace": Change(True, {"ambient": {"enabled": True}}),
    "cni resourceQuotas.pods": Change(7, {"resourceQuotas": {"enabled": True}}),
    "cni global.defaultResources.requests.cpu": Change("20m", NO_RESOURCES),
    "cni global.defaultResources.requests.memory": Change("20Mi", NO_RESOURCES),
    "ztunnel resourceQuotas.pods": Change(7, {"resourceQuotas": {"enabled": True}}),
}
POD = {
    "metadata": {"name": "a", "namespace": "shop"},
    "spec": {
        "containers": [
            {"name": "app", "ports": [{"containerPort": 80}], "readinessProbe": {"httpGet": {"path": "/", "port": 80}}}
        ]
    },
}


@functools.cache
def chart(name: str) -> Chart:
    return read_chart(installation_folder() / "charts" / name)


def settings_of(name: str) -> list[tuple[str, Any]]:
    """Return the path and the default of each value of a chart."""
    values = yaml.safe_load((installation_folder() / "charts" / name / "values.yaml").read_text("utf-8"))
    return list(leaves(values.get("chartDefaults", values)))


def leaves(values: Values, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def another(value: Any) -> Any:
    """Return a value that differs from a default, of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case list():
            return [*value, {"name": "x1"}]
        case dict():
            return {"x1": "y1"}
        case None:
            return 3
    return "x1"


def merged(tree: Values, path: list[str], value: Any) -> Values:
    """Return a copy of values with one more value at a path."""
    first, *rest = path
    below = tree.get(first)
    return {**tree, first: merged(below if isinstance(below, dict) else {}, rest, value) if rest else value}


@functools.cache
def effects_of(name: str, values: str) -> str:
    return effects(name, json.loads(values))


def effects(name: str, values: Values) -> str:
    """Return what values lead to, as text.

    It contains the objects, without the ConfigMaps that repeat the values, and what istiod makes with the values.
    """
    objects = list(render(chart(name), values, SYSTEM))
    pods: list[Any] = []
    for manifest in objects:
        if manifest["kind"] == "ConfigMap" and "values" in (data := manifest["data"]):
            if "config" in data:
                pods = pods_of(decode_config(data["config"], data["values"]))
            data.pop("values")
        if manifest["kind"] == "ConfigMap" and manifest["metadata"]["name"].startswith("values"):
            manifest["data"] = {}
    return json.dumps([objects, pods], sort_keys=True)


def pods_of(config: InjectorConfig) -> list[Any]:
    """Return an injected Pod and two gateways."""
    mesh = MeshConfig()
    owner = WorkloadOwner("Deployment", "apps/v1", "a", "shop")
    results: list[Any] = [inject(InjectionRequest(POD, owner, config, mesh, mesh.default_config))]
    for template in ("kube-gateway", "waypoint"):
        metadata = {"name": "gw", "namespace": "shop"}
        rest = ("gw-istio", "gw-sa", "LoadBalancer", (), (), {}, {}, (), mesh.default_config, mesh)
        gateway = GatewayToRender(metadata, "istio", template, "istio.io-gateway-controller", *rest, "c", "", 134, 1, 1)
        results.append(render_gateway(gateway, config))
    return results


@pytest.mark.parametrize("name", [*CHARTS, "istio-operator"])
def test_each_value_has_an_effect(name: str) -> None:
    silent = []
    for path, default in settings_of(name):
        key = f"{name} {path}"
        change = CHANGES.get(key, Change(another(default)))
        needs = NETWORK if "networkGatewayPorts" in key else change.needs
        if effects(name, merged(needs, path.split("."), change.value)) == effects_of(name, json.dumps(needs)):
            silent.append(key)
    assert silent == [key for key in WITHOUT_EFFECT if key.startswith(f"{name} ")]


def test_changed_values_exist() -> None:
    names = {f"{name} {path}" for name in [*CHARTS, "istio-operator"] for path, _ in settings_of(name)}
    assert not {*CHANGES, *WITHOUT_EFFECT} - names
