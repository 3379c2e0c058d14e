"""The IstioOperators in samples/install."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import yaml

from deploy.operator.inputs import user_settings
from deploy.operator.manifest import render_installation
from pilot.ingest.mesh_config import decode_mesh_config
from webhook.inject.config import decode_config

FOLDER = pathlib.Path(__file__).parents[3] / "samples" / "install"


def render_sample(name: str) -> dict[str, Any]:
    warnings: list[str] = []
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    objects = render_installation(user_settings([(name, text)], ()).plain, warnings.append).objects()
    assert warnings == []
    return {
        "/".join(filter(None, (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]))): o for o in objects
    }


def test_gateway_without_a_control_plane() -> None:
    objects = render_sample("gateway-outside")
    assert {key.split("/")[1] for key in objects} == {"shop-edge"}
    service = objects["Service/shop-edge/shop-gateway"]["spec"]
    assert (service["type"], service["externalTrafficPolicy"]) == ("LoadBalancer", "Local")
    assert [(p["port"], p["targetPort"]) for p in service["ports"]] == [(15021, 15021), (443, 8443)]
    assert service["selector"] == {"app": "istio-ingressgateway", "istio": "shop-gateway"}
    container = objects["Deployment/shop-edge/shop-gateway"]["spec"]["template"]["spec"]["containers"][0]
    assert [p["containerPort"] for p in container["ports"]] == [15021, 8443, 15090]


def test_custom_injection_template() -> None:
    data = render_sample("injection-template")["ConfigMap/istio-system/istio-sidecar-injector"]["data"]
    config = decode_config(data["config"], data["values"])
    assert config.written.default_templates == ("sidecar", "limits")
    assert {"sidecar", "limits"} <= set(config.templates)


def test_placement_and_gateway_ports() -> None:
    objects = render_sample("placement")
    term = objects["Deployment/istio-system/istiod"]["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert term["requiredDuringSchedulingIgnoredDuringExecution"][0]["topologyKey"] == "topology.kubernetes.io/zone"
    scaler = objects["HorizontalPodAutoscaler/istio-system/istiod"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 9)
    assert objects["PodDisruptionBudget/istio-system/istiod"]["spec"]["minAvailable"] == 1
    assert [p["name"] for p in objects["Service/istio-system/istio-ingressgateway"]["spec"]["ports"]] == [
        "status-port",
        "http2",
        "postgres",
    ]


def test_tracing_and_proxy_lifecycle() -> None:
    objects = render_sample("tracing")
    mesh, _ = decode_mesh_config([yaml.safe_load(objects["ConfigMap/istio-system/istio"]["data"]["mesh"])])
    assert mesh is not None
    assert mesh.enable_tracing
    proxy = yaml.safe_load(objects["ConfigMap/istio-system/istio"]["data"]["mesh"])["defaultConfig"]
    assert proxy["tracing"] == {"datadog": {"address": "datadog-agent.monitoring:8126"}}
    assert proxy["holdApplicationUntilProxyStarts"] is True
    variables = objects["Deployment/istio-system/istiod"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "PILOT_TRACE_SAMPLING", "value": "10"} in variables
    values = json.loads(objects["ConfigMap/istio-system/istio-sidecar-injector"]["data"]["values"])
    assert values["global"]["proxy"]["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
