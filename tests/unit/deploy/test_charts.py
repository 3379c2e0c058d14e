"""The charts render the objects of Istio's charts, with settings that the control plane reads."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy import rbac
from deploy.chart.chart import Chart, ChartError, installation_folder, read_chart
from deploy.chart.render import render
from deploy.generated import CHARTS, ROOT, chart_version, generated_files
from deploy.operator.manifest import render_installation
from deploy.rbac import CA_SECRETS, OWN_NAMESPACE, ROOT_MAPS, ResourceAccess, roles, rules
from pilot.bootstrap.clusters import controllers
from pilot.bootstrap.security.secret_store import PLUGGED_IN_SECRET, SELF_SIGNED_SECRET
from pilot.config.problem import Severity
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.settings.kubernetes import KubernetesSettings
from webhook.defaults.injector_config import default_values
from webhook.inject.config import decode_config

pytestmark = pytest.mark.slow

SYSTEM = "istio-system"


@functools.cache
def chart(name: str) -> Chart:
    return read_chart(installation_folder() / "charts" / name)


def render_chart(name: str, values: dict[str, Any], namespace: str = SYSTEM) -> dict[str, Any]:
    """Return the rendered objects by kind and name."""
    return {f"{o['kind']}/{o['metadata']['name']}": o for o in render(chart(name), values, namespace)}


def names_without_crds(objects: dict[str, Any]) -> set[str]:
    return {name for name in objects if not name.startswith("CustomResourceDefinition/")}


@pytest.mark.parametrize(
    ("version", "chart"),
    [("1.2.3", "1.2.3"), ("1.0.0rc1", "1.0.0-rc.1"), ("1.0.0a10", "1.0.0-alpha.10"), ("2.0.0b2", "2.0.0-beta.2")],
)
def test_chart_version(version: str, chart: str) -> None:
    assert chart_version(version) == chart


@pytest.mark.parametrize("version", ["1.0", "1.0.0.dev1", "1.0.0rc", "1.0.0-rc.1"])
def test_invalid_chart_version(version: str) -> None:
    with pytest.raises(ValueError, match=f"^{version} is not MAJOR.MINOR.PATCH"):
        chart_version(version)


NAMES = {
    "base": "ServiceAccount/istio-reader-service-account ValidatingWebhookConfiguration/istiod-default-validator",
    "istiod": "Deployment/istiod Service/istiod HorizontalPodAutoscaler/istiod ServiceAccount/istiod Role/istiod RoleBinding/istiod "
    "ClusterRole/istiod-clusterrole-istio-system ClusterRoleBinding/istiod-clusterrole-istio-system "
    "ClusterRole/istiod-gateway-controller-istio-system ClusterRoleBinding/istiod-gateway-controller-istio-system "
    "ClusterRole/istio-reader-clusterrole-istio-system ClusterRoleBinding/istio-reader-clusterrole-istio-system "
    "ConfigMap/istio ConfigMap/istio-sidecar-injector ConfigMap/values MutatingWebhookConfiguration/istio-sidecar-injector "
    "ValidatingWebhookConfiguration/istio-validator-istio-system NetworkPolicy/istiod",
    "gateway": "Deployment/istio Service/istio HorizontalPodAutoscaler/istio ServiceAccount/istio Role/istio RoleBinding/istio",
    "ingress": "Deployment/istio-ingressgateway Service/istio-ingressgateway HorizontalPodAutoscaler/istio-ingressgateway "
    "ServiceAccount/istio-ingressgateway-service-account Role/istio-ingressgateway-sds RoleBinding/istio-ingressgateway-sds",
    "egress": "Deployment/istio-egressgateway Service/istio-egressgateway HorizontalPodAutoscaler/istio-egressgateway "
    "ServiceAccount/istio-egressgateway-service-account Role/istio-egressgateway-sds RoleBinding/istio-egressgateway-sds",
    "cni": "DaemonSet/istio-cni-node ConfigMap/istio-cni-config ServiceAccount/istio-cni ClusterRole/istio-cni ClusterRoleBinding/istio-cni "
    "ClusterRole/istio-cni-repair-role ClusterRoleBinding/istio-cni-repair-rolebinding",
    "ztunnel": "DaemonSet/ztunnel ServiceAccount/ztunnel",
}


@pytest.mark.parametrize("name", CHARTS)
def test_default_objects(name: str) -> None:
    assert names_without_crds(render_chart(name, {})) == set(NAMES[name].split())


def test_revision_is_in_all_names() -> None:
    plain, blue = render_chart("istiod", {}), render_chart("istiod", {"revision": "blue"})
    assert not set(plain) & set(blue)
    selector = {"app": "istiod", "istio.io/rev": "blue"}
    assert (
        blue["Service/istiod-blue"]["spec"]["selector"]
        == blue["Deployment/istiod-blue"]["spec"]["selector"]["matchLabels"]
        == selector
    )
    webhooks = blue["MutatingWebhookConfiguration/istio-sidecar-injector-blue"]["webhooks"]
    assert [w["name"].removesuffix(".sidecar-injector.istio.io") for w in webhooks] == ["rev.namespace", "rev.object"]


def test_cluster_scoped_names_have_the_namespace() -> None:
    objects = render_chart("istiod", {"global": {"istioNamespace": "mesh"}}, "mesh")
    assert "MutatingWebhookConfiguration/istio-sidecar-injector-mesh" in objects
    assert {n for n in objects if n.startswith("ClusterRole/")} == {
        "ClusterRole/istiod-clusterrole-mesh",
        "ClusterRole/istiod-gateway-controller-mesh",
        "ClusterRole/istio-reader-clusterrole-mesh",
    }


PROJECT = tomllib.loads((ROOT.parent / "pyproject.toml").read_text("utf-8"))
OWN_IMAGE = f"{PROJECT['tool']['pyistiod']['image']}:{chart_version(PROJECT['project']['version'])}"
HARDENED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}
AWAY = {"key": "a", "operator": "In", "values": "b,c", "topologyKey": "zone"}
FIRST = "spec.template.spec.containers.0"
# Values of a chart, the object and path that they affect, and the expected value; "absent" if there is no such object.
VALUE_CASES = {
    "istiod replicas": ("istiod", {"autoscaleEnabled": False, "replicaCount": 3}, "Deployment/istiod spec.replicas", 3),
    "istiod fixed replicas have no autoscaler": (
        "istiod",
        {"autoscaleEnabled": False},
        "HorizontalPodAutoscaler/istiod",
        "absent",
    ),
    "istiod two replicas have a budget": (
        "istiod",
        {"autoscaleMin": 2},
        "PodDisruptionBudget/istiod spec.minAvailable",
        1,
    ),
    "istiod one replica has no budget": ("istiod", {}, "PodDisruptionBudget/istiod", "absent"),
    "istiod values below pilot": (
        "istiod",
        {"pilot": {"autoscaleMax": 9}},
        "HorizontalPodAutoscaler/istiod spec.maxReplicas",
        9,
    ),
    "istiod image by hub, tag and variant": (
        "istiod",
        {"global": {"hub": "h/x", "tag": 7, "variant": "debug"}},
        f"Deployment/istiod {FIRST}.image",
        "h/x/pilot:7-debug",
    ),
    "istiod full image": (
        "istiod",
        {"image": "h/pyistiod:1", "tag": "other"},
        f"Deployment/istiod {FIRST}.image",
        "h/pyistiod:1",
    ),
    "istiod own image": ("istiod", {}, f"Deployment/istiod {FIRST}.image", OWN_IMAGE),
    "istiod own image with another version": (
        "istiod",
        {"tag": "0.9.0"},
        f"Deployment/istiod {FIRST}.image",
        f"{OWN_IMAGE.partition(':')[0]}:0.9.0",
    ),
    "istiod own image with proxies of another version": (
        "istiod",
        {"global": {"tag": "1.28.0", "variant": "distroless"}},
        f"Deployment/istiod {FIRST}.image",
        OWN_IMAGE,
    ),
    "istiod image by name": (
        "istiod",
        {"image": "other", "global": {"hub": "h", "tag": "1"}},
        f"Deployment/istiod {FIRST}.image",
        "h/other:1",
    ),
    "operator own image": ("istio-operator", {}, f"Deployment/istio-operator {FIRST}.image", OWN_IMAGE),
    "operator image by hub": (
        "istio-operator",
        {"hub": "h", "tag": 1},
        f"Deployment/istio-operator {FIRST}.image",
        "h/operator:1",
    ),
    "operator full image": (
        "istio-operator",
        {"image": "h/o:1", "hub": "x"},
        f"Deployment/istio-operator {FIRST}.image",
        "h/o:1",
    ),
    "istiod autoscaling by memory": (
        "istiod",
        {"memory": {"targetAverageUtilization": 70}},
        "HorizontalPodAutoscaler/istiod spec.metrics.1.resource.name",
        "memory",
    ),
    "istiod resources without null": (
        "istiod",
        {"resources": {"requests": {"cpu": None}}, "memoryLimit": ""},
        f"Deployment/istiod {FIRST}.resources",
        {"requests": {"memory": "2048Mi"}},
    ),
    "istiod memory limit": ("istiod", {}, f"Deployment/istiod {FIRST}.resources.limits", {"memory": "8Gi"}),
    "istiod memory limit of the user": (
        "istiod",
        {"resources": {"limits": {"memory": "3Gi"}}},
        f"Deployment/istiod {FIRST}.resources.limits",
        {"memory": "3Gi"},
    ),
    "istiod memory request of the user has no default limit": (
        "istiod",
        {"resources": {"requests": {"memory": "16Gi"}}},
        f"Deployment/istiod {FIRST}.resources",
        {"requests": {"cpu": "500m", "memory": "16Gi"}},
    ),
    "istiod seccomp profile": (
        "istiod",
        {},
        f"Deployment/istiod {FIRST}.securityContext.seccompProfile",
        {"type": "RuntimeDefault"},
    ),
    "istiod without a seccomp profile": (
        "istiod",
        {"seccompProfile": {"type": ""}},
        f"Deployment/istiod {FIRST}.securityContext",
        HARDENED,
    ),
    "operator seccomp profile": (
        "istio-operator",
        {},
        f"Deployment/istio-operator {FIRST}.securityContext.seccompProfile",
        {"type": "RuntimeDefault"},
    ),
    "istiod without plaintext xDS": (
        "istiod",
        {"plaintextXds": False},
        "Service/istiod spec.ports.0.name",
        "https-dns",
    ),
    "istiod without a network policy": (
        "istiod",
        {"global": {"networkPolicy": {"enabled": False}}},
        "NetworkPolicy/istiod",
        "absent",
    ),
    "istiod network policy with namespaces for metrics": (
        "istiod",
        {"networkPolicy": {"metricsNamespaces": ["monitoring"]}},
        "NetworkPolicy/istiod spec.ingress.2.from",
        [
            {"podSelector": {}},
            {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["monitoring"]}
                    ]
                }
            },
        ],
    ),
    "istiod profile": ("istiod", {"profile": "demo"}, f"Deployment/istiod {FIRST}.resources.requests.memory", "100Mi"),
    "istiod values override the profile": (
        "istiod",
        {"profile": "demo", "resources": {"requests": {"memory": "1Gi"}}},
        f"Deployment/istiod {FIRST}.resources.requests.memory",
        "1Gi",
    ),
    "istiod remote address": (
        "istiod",
        {"profile": "remote", "global": {"remotePilotAddress": "10.0.0.1"}},
        "EndpointSlice/istiod addressType",
        "IPv4",
    ),
    "istiod remote hostname": (
        "istiod",
        {"profile": "remote", "global": {"remotePilotAddress": "a.example.com"}},
        "Service/istiod spec.externalName",
        "a.example.com",
    ),
    "istiod remote has no Deployment": ("istiod", {"profile": "remote"}, "Deployment/istiod", "absent"),
    "istiod cluster scope": ("istiod", {"global": {"resourceScope": "cluster"}}, "Deployment/istiod", "absent"),
    "istiod namespace scope": (
        "istiod",
        {"global": {"resourceScope": "namespace"}},
        "ClusterRole/istiod-clusterrole-istio-system",
        "absent",
    ),
    "istiod stable": (
        "istiod",
        {"profile": "stable"},
        "ValidatingAdmissionPolicyBinding/stable-channel-policy-binding-istio-system.istio.io spec.policyName",
        "stable-channel-policy-istio-system.istio.io",
    ),
    "istiod gateway class": (
        "istiod",
        {"gatewayClasses": {"istio": {"service": {"spec": {"type": "ClusterIP"}}}}},
        "ConfigMap/istio-default-gatewayclass-istio data.service",
        "spec:\n  type: ClusterIP\n",
    ),
    "base without a CRD": (
        "base",
        {"base": {"excludedCRDs": ["gateways.networking.istio.io"]}},
        "CustomResourceDefinition/gateways.networking.istio.io",
        "absent",
    ),
    "base validates for a revision": (
        "base",
        {"defaultRevision": "blue"},
        "ValidatingWebhookConfiguration/istiod-default-validator webhooks.0.clientConfig.service.name",
        "istiod-blue",
    ),
    "base without validation": (
        "base",
        {"defaultRevision": ""},
        "ValidatingWebhookConfiguration/istiod-default-validator",
        "absent",
    ),
    "base with a CA bundle fails closed": (
        "base",
        {"base": {"validationCABundle": "QQ=="}},
        "ValidatingWebhookConfiguration/istiod-default-validator webhooks.0.failurePolicy",
        "Fail",
    ),
    "gateway name": (
        "gateway",
        {"name": "edge"},
        "Service/edge spec.selector",
        {"app": "edge", "istio": "edge"},
    ),
    "gateway between networks": ("gateway", {"networkGateway": "n1"}, "Service/istio spec.ports.1.port", 15443),
    "gateway on every node": ("gateway", {"kind": "DaemonSet"}, "HorizontalPodAutoscaler/istio", "absent"),
    "gateway without a service": ("gateway", {"service": {"type": "None"}}, "Service/istio", "absent"),
    "ingress injected": (
        "ingress",
        {"gateways": {"istio-ingressgateway": {"injectionTemplate": "gateway"}}},
        f"Deployment/istio-ingressgateway {FIRST}.image",
        "auto",
    ),
    "ingress nodes": (
        "ingress",
        {"gateways": {"istio-ingressgateway": {"nodeSelector": {"pool": "edge"}}}},
        "Deployment/istio-ingressgateway spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["edge"]}]}]},
    ),
    "ingress away from pods": (
        "ingress",
        {"gateways": {"istio-ingressgateway": {"podAntiAffinityLabelSelector": [AWAY]}}},
        "Deployment/istio-ingressgateway spec.template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.0",
        {
            "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]},
            "topologyKey": "zone",
        },
    ),
    "cni on OpenShift": (
        "cni",
        {"global": {"platform": "openshift"}},
        "NetworkAttachmentDefinition/istio-cni metadata.namespace",
        "default",
    ),
    "cni in ambient": ("cni", {"profile": "ambient"}, "ConfigMap/istio-cni-config data.AMBIENT_ENABLED", "true"),
    "cni compatibility version": (
        "cni",
        {"compatibilityVersion": "1.26"},
        "ConfigMap/istio-cni-config data.AMBIENT_RECONCILE_POD_RULES_ON_STARTUP",
        "false",
    ),
    "ztunnel global values": (
        "ztunnel",
        {"global": {"hub": "h", "tag": "1"}},
        f"DaemonSet/ztunnel {FIRST}.image",
        "h/ztunnel:1",
    ),
    "ztunnel resource name": (
        "ztunnel",
        {"resourceName": "zt"},
        "DaemonSet/zt spec.template.spec.serviceAccountName",
        "zt",
    ),
}


@pytest.mark.parametrize("case", VALUE_CASES)
def test_values(case: str) -> None:
    name, values, target, expected = VALUE_CASES[case]
    key, _, path = target.partition(" ")
    actual: Any = render_chart(name, values).get(key, "absent")
    for part in filter(None, path.split(".")):
        actual = actual[int(part) if isinstance(actual, list) else part]
    assert actual == expected


def images_in(plain: Any) -> Iterator[str]:
    """Yield the images of containers anywhere in plain data."""
    for key, value in plain.items() if isinstance(plain, dict) else enumerate(plain):
        if key == "image" and isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            yield from images_in(value)


@pytest.mark.parametrize("name", [*CHARTS, "istio-operator"])
def test_default_images_are_versions_of_known_registries(name: str) -> None:
    istio = default_values()["global"]
    for image in images_in(list(render_chart(name, {"profile": "demo"} if name in CHARTS else {}).values())):
        repository, _, tag = image.rpartition(":")
        if image != "auto":
            assert image == OWN_IMAGE or (repository.rpartition("/")[0], tag) == (istio["hub"], istio["tag"])
            assert tag not in ("", "latest")


def test_image_of_a_release_is_in_all_charts() -> None:
    files = dict(generated_files("ghcr.io/owner/pyistiod"))
    for name in ("istiod", "istio-operator"):
        assert yaml.safe_load(files[f"charts/{name}/Chart.yaml"])["annotations"]["image"] == "ghcr.io/owner/pyistiod"


@pytest.mark.parametrize("word", ["profile", "platform", "compatibilityVersion"])
def test_unknown_layers(word: str) -> None:
    with pytest.raises(ChartError, match=r"unknown (profile|platform|compatibility version) 0\.9"):
        render_chart("istiod", {word: "0.9"})


def test_control_plane_reads_the_config_maps() -> None:
    objects = render_chart(
        "istiod",
        {"meshConfig": {"accessLogFile": "/dev/stdout"}, "sidecarInjectorWebhook": {"templates": {"mine": "spec: {}"}}},
    )
    mesh, problems = decode_mesh_config([yaml.safe_load(objects["ConfigMap/istio"]["data"]["mesh"])])
    assert mesh is not None
    assert not [p for p in problems if p.severity is Severity.ERROR]
    assert mesh.access_log_file == "/dev/stdout"
    data = objects["ConfigMap/istio-sidecar-injector"]["data"]
    config = decode_config(data["config"], data["values"])
    assert {"sidecar", "gateway", "waypoint", "mine"} <= set(config.templates)


def test_default_injection_values_match_the_chart() -> None:
    chart_values = yaml.safe_load(render_chart("istiod", {})["ConfigMap/istio-sidecar-injector"]["data"]["values"])
    defaults = default_values()
    assert [
        key
        for key in defaults["global"]
        if chart_values["global"].get(key, defaults["global"][key]) != defaults["global"][key]
    ] == []
    assert chart_values["pilot"] == defaults["pilot"]
    assert chart_values["sidecarInjectorWebhook"].items() >= defaults["sidecarInjectorWebhook"].items()


def admitted(objects: dict[str, Any], port: int) -> Any:
    """Return the sources from which the NetworkPolicy admits connections to a port; None admits all, [] none."""
    rules = objects["NetworkPolicy/istiod"]["spec"]["ingress"]
    matching = [rule for rule in rules if port in [p["port"] for p in rule["ports"]]]
    return matching[0].get("from") if matching else []


def test_network_policy_closes_plaintext_and_debug_ports_to_tenants() -> None:
    objects = render_chart("istiod", {})
    own_namespace = [{"podSelector": {}}]
    assert {port: admitted(objects, port) for port in (15010, 8080, 9876, 15012, 15014, 15017)} == {
        15010: own_namespace,
        8080: own_namespace,
        9876: [],
        15012: None,
        15014: own_namespace,
        15017: None,
    }
    selected = objects["NetworkPolicy/istiod"]["spec"]["podSelector"]["matchLabels"]
    assert selected.items() <= objects["Deployment/istiod"]["spec"]["template"]["metadata"]["labels"].items()
    opened = render_chart("istiod", {"networkPolicy": {"plaintextNamespaces": ["*"], "metricsNamespaces": ["*"]}})
    assert (admitted(opened, 15010), admitted(opened, 15014)) == (None, None)


def test_closed_plaintext_xds_is_neither_served_nor_advertised() -> None:
    container = render_chart("istiod", {"plaintextXds": False})["Deployment/istiod"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert "--grpcAddr=" in container["args"]
    assert 15010 not in [port["containerPort"] for port in container["ports"]]


def test_operator_memory_request_has_no_smaller_limit() -> None:
    spec = {"components": {"pilot": {"k8s": {"resources": {"requests": {"memory": "16Gi"}}}}}}
    rendered = render_installation({"spec": {"profile": "minimal", **spec}}, lambda _: None).objects()
    deployment = next(o for o in rendered if o["kind"] == "Deployment")
    resources = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "500m", "memory": "16Gi"}}


def test_role_names_the_configured_maps_of_roots() -> None:
    values = {"global": {"trustBundleName": "roots"}, "env": {"PILOT_CRL_CONFIGMAP": "revoked"}}
    granted = render_chart("istiod", values)["ClusterRole/istiod-clusterrole-istio-system"]["rules"]
    assert [rule["resourceNames"] for rule in granted if "resourceNames" in rule] == [["roots", "revoked"]]


def test_names_in_roles_are_those_of_the_control_plane() -> None:
    assert set(ROOT_MAPS) == {KubernetesSettings().roots_map, KubernetesSettings().crl_map}
    assert set(CA_SECRETS) == {SELF_SIGNED_SECRET, PLUGGED_IN_SECRET}
    assert set(rbac.SHARED_LOCKS) == controllers.SHARED_LOCKS


def test_roles_grant_exactly_the_table() -> None:
    objects = render_chart("istiod", {})
    assert objects["ClusterRole/istiod-clusterrole-istio-system"]["rules"] == roles()["cluster"]
    assert objects["Role/istiod"]["rules"] == rules(OWN_NAMESPACE)
    assert objects["ClusterRole/istio-reader-clusterrole-istio-system"]["rules"] == roles()["reader"]
    granted = [
        (g, r, v)
        for rule in roles()["cluster"]
        for g in rule["apiGroups"]
        for r in rule["resources"]
        for v in rule["verbs"]
    ]
    assert not [row for row in granted if "*" in row]


def test_analysis_role() -> None:
    analysis = roles()["analysis"]
    granted = {(*rule["verbs"], resource.endswith("/status")) for rule in analysis for resource in rule["resources"]}
    assert granted == {("get", False), ("patch", True)}
    for values in (
        {"global": {"istiod": {"enableAnalysis": True}}},
        {"env": {"PILOT_ENABLE_ANALYSIS": "true"}},
        {"env": {"PILOT_ENABLE_STATUS": "true"}},
    ):
        assert render_chart("istiod", values)["ClusterRole/istiod-clusterrole-istio-system"]["rules"] == [
            *roles()["cluster"],
            *analysis,
        ]


@pytest.mark.parametrize(
    ("values", "signers"),
    [
        ({"env": {"K8S_SIGNER": "example.com/mesh"}}, ["example.com/mesh"]),
        ({"env": {"CERT_SIGNER_DOMAIN": "example.com"}}, ["example.com/*"]),
        (
            {"env": {"K8S_SIGNER": "a.com/b", "CERT_SIGNER_DOMAIN": "c.com"}, "global": {"certSigners": ["c.com/d"]}},
            ["a.com/b", "c.com/d"],
        ),
    ],
)
def test_signing_role_is_limited_to_the_signers(values: dict[str, Any], signers: list[str]) -> None:
    approval_rule = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["signers"],
        "resourceNames": signers,
        "verbs": ["approve"],
    }
    for external, more in (("ISTIOD_RA_KUBERNETES_API", [*roles()["signing"], approval_rule]), ("", [])):
        objects = render_chart("istiod", {**values, "env": {**values["env"], "EXTERNAL_CA": external}})
        assert objects["ClusterRole/istiod-clusterrole-istio-system"]["rules"] == [*roles()["cluster"], *more]


def test_service_export_role() -> None:
    objects = render_chart("istiod", {"env": {"ENABLE_MCS_AUTO_EXPORT": "true"}})
    assert objects["ClusterRole/istiod-clusterrole-istio-system"]["rules"] == [*roles()["cluster"], *roles()["exports"]]


def test_roles_name_the_group_of_exported_services() -> None:
    objects = render_chart("istiod", {"env": {"MCS_API_GROUP": "net.gke.io"}})
    for role in ("istiod-clusterrole", "istio-reader-clusterrole"):
        rules = objects[f"ClusterRole/{role}-istio-system"]["rules"]
        assert [rule["apiGroups"] for rule in rules if "serviceexports" in rule["resources"]] == [["net.gke.io"]]


def test_trust_bundle_role() -> None:
    attest_rule = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["signers"],
        "resourceNames": ["istio.io/istiod-ca"],
        "verbs": ["attest"],
    }
    objects = render_chart("istiod", {"env": {"ENABLE_CLUSTER_TRUST_BUNDLE_API": "true"}})
    assert objects["ClusterRole/istiod-clusterrole-istio-system"]["rules"] == [
        *roles()["cluster"],
        *roles()["bundles"],
        attest_rule,
    ]


def test_rules_are_joined_by_equal_verbs() -> None:
    rows = [
        ResourceAccess("g", "b", ("list",), ""),
        ResourceAccess("g", "a", ("list",), ""),
        ResourceAccess("g", "b", ("get",), ""),
        ResourceAccess("", "a", ("list",), ""),
        ResourceAccess("g", "a", ("get",), "", ("n",)),
    ]
    assert rules(rows) == [
        {"apiGroups": [""], "resources": ["a"], "verbs": ["list"]},
        {"apiGroups": ["g"], "resources": ["a"], "resourceNames": ["n"], "verbs": ["get"]},
        {"apiGroups": ["g"], "resources": ["b"], "verbs": ["get", "list"]},
        {"apiGroups": ["g"], "resources": ["a"], "verbs": ["list"]},
    ]
