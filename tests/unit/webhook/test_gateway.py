"""Gateway templates: allowed kinds, names and namespaces, template data, and overlays."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.mesh.mesh_config import InboundTrafficPolicy, MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig, ProxyImage
from webhook.gateway.render import GatewayToRender, RenderError, render_gateway
from webhook.inject.config import decode_config

SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: gw-istio, namespace: a}\n"
ALLOWED_KINDS = (
    "only Deployment, DaemonSet, Service, ServiceAccount, HorizontalPodAutoscaler, PodDisruptionBudget are deployed"
)
ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: gw-sa, namespace: a}\n"


GATEWAY = GatewayToRender(
    {"name": "gw", "namespace": "a"},
    "istio",
    "own",
    "istio.io-gateway-controller",
    "gw-istio",
    "gw-sa",
    "LoadBalancer",
    (),
    (),
    {},
    {},
    (),
    ProxyConfig(),
    MeshConfig(),
    "Kubernetes",
    "default",
    134,
    1337,
    1338,
)


def render(text: str, gateway: GatewayToRender = GATEWAY) -> list[dict[str, Any]]:
    """Render a template."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return render_gateway(
        gateway,
        decode_config(f"templates:\n  own: |\n{lines}", '{"global": {"hub": "h", "tag": "1", "variant": "debug"}}'),
    )


def rendered_kinds(text: str) -> list[str]:
    """Render a template and return the kinds of its objects."""
    return [manifest["kind"] for manifest in render(text)]


def test_allowed_kinds() -> None:
    assert rendered_kinds(f"{SERVICE}---\n{ACCOUNT}") == ["Service", "ServiceAccount"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{SERVICE}---\n{SERVICE}", "the template renders two objects of the same kind"),
        (SERVICE.replace("Service", "Secret"), f"the template renders v1 Secret; {ALLOWED_KINDS}"),
        (SERVICE.replace("Service", "[Service]"), f"the template renders v1 ['Service']; {ALLOWED_KINDS}"),
        (SERVICE.replace("v1", "v2"), f"the template renders v2 Service; {ALLOWED_KINDS}"),
        (SERVICE.replace("apiVersion: v1\nkind: Service\n", ""), f"the template renders None None; {ALLOWED_KINDS}"),
        (
            SERVICE.replace("namespace: a", "namespace: b"),
            "the template renders Service gw-istio in namespace 'b', which is not the Gateway's",
        ),
        (
            SERVICE.replace("gw-istio", "istiod"),
            "the template renders Service 'istiod', which is not the name of the deployment",
        ),
        (
            ACCOUNT.replace("gw-sa", "gw-istio"),
            "the template renders ServiceAccount 'gw-istio', which is not the name of the deployment",
        ),
        ("[x]", "the output of the template is not an object"),
        ("kind: Service\nmetadata: x\n", "the output of the template is not an object"),
        ("{{ fail `no` }}", 'template: inject:1:3: executing "inject" at <fail `no`>: error calling fail: no'),
    ],
)
def test_invalid_templates(text: str, reason: str) -> None:
    with pytest.raises(RenderError) as error:
        rendered_kinds(text)
    assert str(error.value) == reason


def test_missing_template() -> None:
    with pytest.raises(RenderError, match=r"^no 'other' template defined$"):
        render(SERVICE, GATEWAY._replace(template="other"))


TEMPLATE_DATA = {
    "Name": "gw",
    "Namespace": "a",
    "UID": "u-1",
    "Labels": "map[l:1]",
    "Annotations": "map[sidecar.istio.io/proxyImageType:distroless]",
    "ObjectMeta.Name": "gw",
    "Spec.GatewayClassName": "istio",
    "GatewayClass": "istio",
    "DeploymentName": "gw-istio",
    "ServiceAccount": "gw-sa",
    "ServiceType": "LoadBalancer",
    "ClusterID": "Kubernetes",
    "KubeVersion": "134",
    "Revision": "default",
    "NativeSidecars": "true",
    "ProxyUID": "1337",
    "ProxyGID": "1338",
    "CompliancePolicy": "fips-140-2",
    "InfrastructureLabels": "map[il:2]",
    "InfrastructureAnnotations": "map[ia:3]",
    "GatewayNameLabel": "gateway.networking.k8s.io/gateway-name",
    "ControllerLabel": "istio.io-gateway-controller",
    "IsEastWestGateway": "false",
    "ProxyImage": "h/proxyv2:1-distroless",
    "InboundTrafficPolicyMode": "localhost",
    "ProxyConfig.Concurrency.GetValue": "2",
    "MeshConfig.TrustDomain": "td",
    "Values.global.hub": "h",
    "Ports": "[{http 80 TCP https} {http-quic 80 UDP https}]",
    "Spec.Addresses": "[{Hostname a.example}]",
}


def template_data(gateway: GatewayToRender) -> dict[str, str]:
    lines = "".join(f"    {name}: {{{{ printf `%v` .{name} | quote }}}}\n" for name in TEMPLATE_DATA)
    (service,) = render(
        f"{SERVICE.replace('{name: gw-istio, namespace: a}', '')}  name: gw-istio\n  namespace: a\n  annotations:\n{lines}",
        gateway,
    )
    annotations: dict[str, str] = service["metadata"]["annotations"]
    return annotations


def test_template_data() -> None:
    metadata = {"uid": "u-1", "labels": {"l": "1"}, "annotations": {"sidecar.istio.io/proxyImageType": "distroless"}}
    gateway = GATEWAY._replace(
        metadata={**GATEWAY.metadata, **metadata},
        ports=(("http", 80, "https", "TCP"), ("http-quic", 80, "https", "UDP")),
        addresses=(("Hostname", "a.example"),),
        labels={"il": "2"},
        annotations={"ia": "3"},
        proxy_config=ProxyConfig(concurrency=2),
        compliance_policy="fips-140-2",
        mesh=MeshConfig(trust_domain="td", inbound_traffic_policy=InboundTrafficPolicy(mode="LOCALHOST")),
    )
    assert template_data(gateway) == TEMPLATE_DATA


def test_default_template_data() -> None:
    actual = template_data(GATEWAY._replace(managed="istio.io-eastwest-controller"))
    differences = {name: text for name, text in actual.items() if text != TEMPLATE_DATA[name]}
    assert differences == {
        "UID": "",
        "Labels": "map[]",
        "Annotations": "map[]",
        "CompliancePolicy": "",
        "InfrastructureLabels": "map[]",
        "InfrastructureAnnotations": "map[]",
        "ControllerLabel": "istio.io-eastwest-controller",
        "IsEastWestGateway": "true",
        "ProxyImage": "h/proxyv2:1-debug",
        "InboundTrafficPolicyMode": "passthrough",
        "ProxyConfig.Concurrency.GetValue": "0",
        "MeshConfig.TrustDomain": "cluster.local",
        "Ports": "[]",
        "Spec.Addresses": "[]",
    }


def test_proxy_config_image_overrides_the_values() -> None:
    assert (
        template_data(GATEWAY._replace(proxy_config=ProxyConfig(image=ProxyImage(image_type="distroless"))))[
            "ProxyImage"
        ]
        == "h/proxyv2:1-distroless"
    )


MANAGED = {"gateway.networking.k8s.io/gateway-name": "gw", "gateway.istio.io/managed": "istio.io-gateway-controller"}


@pytest.mark.parametrize(
    ("overlays", "labels", "spec"),
    [
        ((), {}, None),
        (({"service": "metadata: {labels: {a: '1', gateway.istio.io/managed: mine}}"},), {"a": "1"}, None),
        (
            ({"service": "spec: {type: NodePort}"}, {"service": "spec: {clusterIP: None}"}),
            {},
            {"type": "NodePort", "clusterIP": "None"},
        ),
        (({"deployment": "spec: {replicas: 5}", "service": ""},), {}, None),
    ],
)
def test_overlays(overlays: tuple[dict[str, str], ...], labels: dict[str, str], spec: dict[str, Any] | None) -> None:
    metadata = {"name": "gw-istio", "namespace": "a", "labels": {**labels, **MANAGED}}
    expected = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, **({"spec": spec} if spec else {})}
    assert render(SERVICE, GATEWAY._replace(overlays=overlays)) == [expected]


SUPPORTED = "deployment, horizontalPodAutoscaler, podDisruptionBudget, service, serviceAccount"
BUDGET = SERVICE.replace("v1", "policy/v1").replace("Service", "PodDisruptionBudget")


def test_disruption_budget_needs_an_overlay() -> None:
    assert render(BUDGET) == []
    (budget,) = render(BUDGET, GATEWAY._replace(overlays=({"podDisruptionBudget": "spec: {minAvailable: 1}"},)))
    assert budget["spec"] == {"minAvailable": 1}


@pytest.mark.parametrize(
    ("overlay", "reason"),
    [
        ({"secret": ""}, f"unsupported overlay 'secret' (supported: {SUPPORTED})"),
        ({"service": "[a]"}, "overlay 'service' must be a mapping"),
        ({"service": "a"}, "overlay 'service' must be a mapping"),
        ({"service": "a: 1\n---\nb: 1\n"}, "overlay 'service' must be a mapping"),
        ({"service": "metadata: {$patch: often}"}, "overlay 'service': unknown patch type: often"),
        ({"service": "kind: Secret"}, "an overlay must not change kind"),
        ({"service": "apiVersion: v2"}, "an overlay must not change apiVersion"),
        ({"service": "metadata: {name: b}"}, "an overlay must not change metadata.name"),
        ({"service": "metadata: {namespace: b}"}, "an overlay must not change metadata.namespace"),
        ({"service": "metadata: {uid: b}"}, "an overlay must not change metadata.uid"),
        ({"service": "metadata: [a]"}, "an overlay must not change metadata.name"),
    ],
)
def test_invalid_overlays(overlay: dict[str, str], reason: str) -> None:
    with pytest.raises(RenderError) as error:
        render(SERVICE, GATEWAY._replace(overlays=(overlay,)))
    assert str(error.value) == reason
