"""The IstioOperators in samples/install, and what each of them makes."""

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


def installed(name: str) -> dict[str, Any]:
    warnings: list[str] = []
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    found = render_installation(user_settings([(name, text)], ()), warnings.append).objects()
    assert warnings == []
    return {
        "/".join(filter(None, (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]))): o for o in found
    }


def test_a_gateway_is_installed_alone_and_outside() -> None:
    found = installed("gateway-outside")
    assert {key.split("/")[1] for key in found} == {"shop-edge"}
    service = found["Service/shop-edge/shop-gateway"]["spec"]
    assert (service["type"], service["externalTrafficPolicy"]) == ("LoadBalancer", "Local")
    assert [(p["port"], p["targetPort"]) for p in service["ports"]] == [(15021, 15021), (443, 8443)]
    assert service["selector"] == {"app": "istio-ingressgateway", "istio": "shop-gateway"}
    container = found["Deployment/shop-edge/shop-gateway"]["spec"]["template"]["spec"]["containers"][0]
    assert [p["containerPort"] for p in container["ports"]] == [15021, 8443, 15090]


def test_a_template_of_ones_own_is_merged_into_every_pod() -> None:
    data = installed("injection-template")["ConfigMap/istio-system/istio-sidecar-injector"]["data"]
    config = decode_config(data["config"], data["values"])
    assert config.written.default_templates == ("sidecar", "limits")
    assert {"sidecar", "limits"} <= set(config.templates)


def test_replicas_stand_in_different_zones_and_the_gateway_has_more_ports() -> None:
    found = installed("placement")
    term = found["Deployment/istio-system/istiod"]["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert term["requiredDuringSchedulingIgnoredDuringExecution"][0]["topologyKey"] == "topology.kubernetes.io/zone"
    scaler = found["HorizontalPodAutoscaler/istio-system/istiod"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 9)
    assert found["PodDisruptionBudget/istio-system/istiod"]["spec"]["minAvailable"] == 1
    assert [p["name"] for p in found["Service/istio-system/istio-ingressgateway"]["spec"]["ports"]] == [
        "status-port",
        "http2",
        "postgres",
    ]


def test_spans_go_to_datadog_and_the_proxy_outlives_its_application() -> None:
    found = installed("tracing")
    mesh, _ = decode_mesh_config([yaml.safe_load(found["ConfigMap/istio-system/istio"]["data"]["mesh"])])
    assert mesh is not None
    assert mesh.enable_tracing
    proxy = yaml.safe_load(found["ConfigMap/istio-system/istio"]["data"]["mesh"])["defaultConfig"]
    assert proxy["tracing"] == {"datadog": {"address": "datadog-agent.monitoring:8126"}}
    assert proxy["holdApplicationUntilProxyStarts"] is True
    variables = found["Deployment/istio-system/istiod"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "PILOT_TRACE_SAMPLING", "value": "10"} in variables
    values = json.loads(found["ConfigMap/istio-system/istio-sidecar-injector"]["data"]["values"])
    assert values["global"]["proxy"]["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
