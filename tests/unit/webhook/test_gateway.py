"""What the template of a Gateway may give: each of a few kinds once, in its namespace, under its name."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.mesh.mesh_config import InboundTrafficPolicy, MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig, ProxyImage
from webhook.gateway.render import GatewayToRender, RenderError, render_gateway
from webhook.inject.config import decode_config

SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: gw-istio, namespace: a}\n"
ONLY = "only Deployment, DaemonSet, Service, ServiceAccount, HorizontalPodAutoscaler, PodDisruptionBudget are deployed"
ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: gw-sa, namespace: a}\n"


NOTHING = GatewayToRender(
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


def objects(text: str, gateway: GatewayToRender = NOTHING) -> list[dict[str, Any]]:
    """The objects that a template gives."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return render_gateway(
        gateway,
        decode_config(f"templates:\n  own: |\n{lines}", '{"global": {"hub": "h", "tag": "1", "variant": "debug"}}'),
    )


def rendered(text: str) -> list[str]:
    """The kinds that a template gives."""
    return [made["kind"] for made in objects(text)]


def test_it_gives_objects_of_a_few_kinds() -> None:
    assert rendered(f"{SERVICE}---\n{ACCOUNT}") == ["Service", "ServiceAccount"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{SERVICE}---\n{SERVICE}", "the template renders two objects of the same kind"),
        (SERVICE.replace("Service", "Secret"), f"the template renders v1 Secret; {ONLY}"),
        (SERVICE.replace("Service", "[Service]"), f"the template renders v1 ['Service']; {ONLY}"),
        (SERVICE.replace("v1", "v2"), f"the template renders v2 Service; {ONLY}"),
        (SERVICE.replace("apiVersion: v1\nkind: Service\n", ""), f"the template renders None None; {ONLY}"),
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
def test_everything_else_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RenderError) as error:
        rendered(text)
    assert str(error.value) == reason


def test_a_template_that_is_not_there_is_named() -> None:
    with pytest.raises(RenderError, match=r"^no 'other' template defined$"):
        objects(SERVICE, NOTHING._replace(template="other"))


SEEN = {
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
    "Ports": "[{http 80 TCP https}]",
    "Spec.Addresses": "[{Hostname a.example}]",
}


def seen(gateway: GatewayToRender) -> dict[str, str]:
    lines = "".join(f"    {name}: {{{{ printf `%v` .{name} | quote }}}}\n" for name in SEEN)
    (service,) = objects(
        f"{SERVICE.replace('{name: gw-istio, namespace: a}', '')}  name: gw-istio\n  namespace: a\n  annotations:\n{lines}",
        gateway,
    )
    found: dict[str, str] = service["metadata"]["annotations"]
    return found


def test_a_template_sees_what_the_gateway_says() -> None:
    metadata = {"uid": "u-1", "labels": {"l": "1"}, "annotations": {"sidecar.istio.io/proxyImageType": "distroless"}}
    gateway = NOTHING._replace(
        metadata={**NOTHING.metadata, **metadata},
        ports=(("http", 80, "https"),),
        addresses=(("Hostname", "a.example"),),
        labels={"il": "2"},
        annotations={"ia": "3"},
        proxy_config=ProxyConfig(concurrency=2),
        compliance_policy="fips-140-2",
        mesh=MeshConfig(trust_domain="td", inbound_traffic_policy=InboundTrafficPolicy(mode="LOCALHOST")),
    )
    assert seen(gateway) == SEEN


def test_a_template_sees_defaults_of_what_the_gateway_does_not_say() -> None:
    found = seen(NOTHING._replace(managed="istio.io-eastwest-controller"))
    differs = {name: text for name, text in found.items() if text != SEEN[name]}
    assert differs == {
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


def test_the_image_of_the_proxy_config_comes_before_that_of_the_values() -> None:
    assert (
        seen(NOTHING._replace(proxy_config=ProxyConfig(image=ProxyImage(image_type="distroless"))))["ProxyImage"]
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
def test_what_config_maps_say_is_laid_over_an_object_of_their_kind(
    overlays: tuple[dict[str, str], ...], labels: dict[str, str], spec: dict[str, Any] | None
) -> None:
    metadata = {"name": "gw-istio", "namespace": "a", "labels": {**labels, **MANAGED}}
    wanted = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, **({"spec": spec} if spec else {})}
    assert objects(SERVICE, NOTHING._replace(overlays=overlays)) == [wanted]


SUPPORTED = "deployment, horizontalPodAutoscaler, podDisruptionBudget, service, serviceAccount"
BUDGET = SERVICE.replace("v1", "policy/v1").replace("Service", "PodDisruptionBudget")


def test_a_disruption_budget_is_there_only_where_something_is_laid_over_it() -> None:
    assert objects(BUDGET) == []
    (found,) = objects(BUDGET, NOTHING._replace(overlays=({"podDisruptionBudget": "spec: {minAvailable: 1}"},)))
    assert found["spec"] == {"minAvailable": 1}


@pytest.mark.parametrize(
    ("overlay", "reason"),
    [
        ({"secret": ""}, f"unsupported overlay 'secret' (supported: {SUPPORTED})"),
        ({"service": "[a]"}, "overlay 'service' is not a mapping"),
        ({"service": "a"}, "overlay 'service' is not a mapping"),
        ({"service": "a: 1\n---\nb: 1\n"}, "overlay 'service' is not a mapping"),
        ({"service": "metadata: {$patch: often}"}, "overlay 'service': unknown patch type: often"),
        ({"service": "kind: Secret"}, "an overlay may not change kind"),
        ({"service": "apiVersion: v2"}, "an overlay may not change apiVersion"),
        ({"service": "metadata: {name: b}"}, "an overlay may not change metadata.name"),
        ({"service": "metadata: {namespace: b}"}, "an overlay may not change metadata.namespace"),
        ({"service": "metadata: {uid: b}"}, "an overlay may not change metadata.uid"),
        ({"service": "metadata: [a]"}, "an overlay may not change metadata.name"),
    ],
)
def test_a_config_map_that_cannot_be_laid_over_an_object_says_why(overlay: dict[str, str], reason: str) -> None:
    with pytest.raises(RenderError) as error:
        objects(SERVICE, NOTHING._replace(overlays=(overlay,)))
    assert str(error.value) == reason
