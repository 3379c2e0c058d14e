"""The default templates: each one parses, and those for deployed gateways render Kubernetes objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gotemplate import parse
from gotemplate.go_json import floats
from gotemplate.values import Int64, StringMap
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig
from webhook.defaults.injector_config import default_values
from webhook.defaults.templates import NAMES, default_templates
from webhook.inject.api_object import ApiObject
from webhook.inject.data import StructData
from webhook.inject.functions import FUNCTIONS
from webhook.inject.message import TemplateMessage
from webhook.pod.schema import TYPES


def gateway(values: dict[str, Any] | None = None, **changes: Any) -> StructData:
    members = {
        "Name": "public",
        "Namespace": "shop",
        "UID": "u-1",
        "DeploymentName": "public-istio",
        "ServiceAccount": "public-account",
        "GatewayClass": "istio",
        "GatewayNameLabel": "gateway.networking.k8s.io/gateway-name",
        "ControllerLabel": "istio.io-gateway-controller",
        "KubeVersion": 130,
        "ServiceType": "LoadBalancer",
        "ClusterID": "Kubernetes",
        "Revision": "",
        "IsEastWestGateway": False,
        "InfrastructureLabels": StringMap({"topology.istio.io/network": "n1"}),
        "InfrastructureAnnotations": StringMap({"a": "b"}),
        "Ports": [StructData("v1.ServicePort", {"Name": "http", "Port": 80, "Protocol": "TCP", "AppProtocol": "http"})],
        "Spec": StructData(
            "v1.GatewaySpec", {"Addresses": [StructData("v1.GatewaySpecAddress", {"Value": "1.2.3.4"})]}
        ),
        "ObjectMeta": ApiObject({"name": "public"}, TYPES["ObjectMeta"]),
        "ProxyImage": "registry.example/proxy:1",
        "ProxyUID": Int64(1337),
        "ProxyGID": Int64(1337),
        "CompliancePolicy": "",
        "InboundTrafficPolicyMode": "passthrough",
        "ProxyConfig": TemplateMessage(ProxyConfig(), ProxyConfig),
        "MeshConfig": TemplateMessage(MeshConfig(), MeshConfig),
        "Values": floats(default_values(values)),
    }
    return StructData("gateway.TemplateInput", {**members, **changes})


def objects(template: str, data: StructData) -> dict[str, Any]:
    text = parse("inject", default_templates()[template], FUNCTIONS).execute(data)
    assert "<no value>" not in text
    assert "<nil>" not in text
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


@pytest.mark.parametrize("name", NAMES)
def test_templates_parse(name: str) -> None:
    parse("inject", default_templates()[name], FUNCTIONS)


@pytest.mark.parametrize("template", ["kube-gateway", "waypoint"])
def test_objects_of_a_deployed_gateway(template: str) -> None:
    rendered = objects(template, gateway())
    assert set(rendered) == {
        "ServiceAccount",
        "Deployment",
        "Service",
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
    }
    for kind, document in rendered.items():
        metadata = document["metadata"]
        assert metadata["name"] == ("public-account" if kind == "ServiceAccount" else "public-istio")
        assert metadata["namespace"] == "shop"
        assert metadata["labels"]["gateway.networking.k8s.io/gateway-name"] == "public"
        assert metadata["annotations"]["a"] == "b"
        assert metadata["ownerReferences"][0]["uid"] == "u-1"


def test_proxy_settings_of_a_gateway() -> None:
    pod = objects("kube-gateway", gateway())["Deployment"]["spec"]["template"]
    (proxy,) = pod["spec"]["containers"]
    variables = {e["name"]: e.get("value") for e in proxy["env"]}
    assert variables["ISTIO_META_NETWORK"] == variables["ISTIO_META_REQUESTED_NETWORK_VIEW"] == "n1"
    assert variables["ISTIO_META_OWNER"] == "kubernetes://apis/apps/v1/namespaces/shop/deployments/public-istio"
    assert json.loads(variables["PROXY_CONFIG"]) == {}
    assert proxy["args"][:4] == ["proxy", "router", "--domain", "$(POD_NAMESPACE).svc.cluster.local"]
    assert proxy["image"] == "registry.example/proxy:1"
    assert {v["name"] for v in pod["spec"]["volumes"]} >= {m["name"] for m in proxy["volumeMounts"]}
    assert pod["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert pod["metadata"]["annotations"]["istio.io/rev"] == "default"


def test_service_of_a_gateway() -> None:
    spec = objects("kube-gateway", gateway())["Service"]["spec"]
    assert spec["ports"] == [{"name": "http", "port": 80, "protocol": "TCP", "appProtocol": "http"}]
    assert (spec["type"], spec["loadBalancerIP"]) == ("LoadBalancer", "1.2.3.4")
    assert "loadBalancerIP" not in objects("kube-gateway", gateway(ServiceType="ClusterIP"))["Service"]["spec"]


def test_waypoint_settings_and_network_view() -> None:
    values = {"global": {"waypoint": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]}}}
    pod = objects("waypoint", gateway(values, ControllerLabel="istio.io-eastwest-controller"))["Deployment"]["spec"][
        "template"
    ]["spec"]
    assert pod["nodeSelector"] == {"a": "b"}
    assert pod["tolerations"] == [{"key": "k"}]
    (proxy,) = pod["containers"]
    assert {"name": "ISTIO_META_REQUESTED_NETWORK_VIEW", "value": "n1"} in proxy["env"]
    assert proxy["args"][:2] == ["proxy", "waypoint"]
    assert proxy["securityContext"]["runAsUser"] == 1337
    openshift = objects("waypoint", gateway({"global": {"platform": "openshift"}}))["Deployment"]["spec"]["template"][
        "spec"
    ]["containers"][0]
    assert "runAsUser" not in openshift["securityContext"]


def test_service_account_without_owner_in_old_clusters() -> None:
    text = parse("inject", default_templates()["kube-gateway"], FUNCTIONS).execute(gateway(KubeVersion=127))
    account = next(d for d in yaml.safe_load_all(text) if d["kind"] == "ServiceAccount")
    assert "ownerReferences" not in account["metadata"]
