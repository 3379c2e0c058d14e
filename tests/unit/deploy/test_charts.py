"""The charts give the objects that users of Istio's charts rely on, and what is in them is what the control plane reads."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import yaml

from deploy.chart.chart import Chart, ChartError, installation_folder, read_chart
from deploy.chart.render import render
from deploy.generated import CHARTS, chart_version, stale_files
from deploy.rbac import OWN_NAMESPACE, ResourceAccess, roles, rules
from pilot.config.problem import Severity
from pilot.ingest.mesh_config import decode_mesh_config
from webhook.inject.config import decode_config
from webhook.defaults.injector_config import default_values

pytestmark = pytest.mark.slow

SYSTEM = "istio-system"


@functools.cache
def chart(name: str) -> Chart:
    return read_chart(installation_folder() / "charts" / name)


def rendered(name: str, values: dict[str, Any], namespace: str = SYSTEM) -> dict[str, Any]:
    """Returns the objects by kind and name."""
    return {f"{o['kind']}/{o['metadata']['name']}": o for o in render(chart(name), values, namespace)}


def without_definitions(found: dict[str, Any]) -> set[str]:
    return {name for name in found if not name.startswith("CustomResourceDefinition/")}


def test_generated_files_are_current() -> None:
    assert stale_files() == []


@pytest.mark.parametrize(
    ("version", "chart"),
    [("1.2.3", "1.2.3"), ("1.0.0rc1", "1.0.0-rc.1"), ("1.0.0a10", "1.0.0-alpha.10"), ("2.0.0b2", "2.0.0-beta.2")],
)
def test_charts_have_the_projects_version_as_a_semantic_version(version: str, chart: str) -> None:
    assert chart_version(version) == chart


@pytest.mark.parametrize("version", ["1.0", "1.0.0.dev1", "1.0.0rc", "1.0.0-rc.1"])
def test_a_version_without_an_equal_semantic_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match=f"^{version} is not MAJOR.MINOR.PATCH"):
        chart_version(version)


NAMES = {
    "base": "ServiceAccount/istio-reader-service-account ValidatingWebhookConfiguration/istiod-default-validator",
    "istiod": "Deployment/istiod Service/istiod HorizontalPodAutoscaler/istiod ServiceAccount/istiod Role/istiod RoleBinding/istiod "
    "ClusterRole/istiod-clusterrole-istio-system ClusterRoleBinding/istiod-clusterrole-istio-system "
    "ClusterRole/istiod-gateway-controller-istio-system ClusterRoleBinding/istiod-gateway-controller-istio-system "
    "ClusterRole/istio-reader-clusterrole-istio-system ClusterRoleBinding/istio-reader-clusterrole-istio-system "
    "ConfigMap/istio ConfigMap/istio-sidecar-injector ConfigMap/values MutatingWebhookConfiguration/istio-sidecar-injector "
    "ValidatingWebhookConfiguration/istio-validator-istio-system",
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
def test_a_chart_without_values_gives_its_objects(name: str) -> None:
    assert without_definitions(rendered(name, {})) == set(NAMES[name].split())


def test_a_revision_is_in_the_name_of_everything_that_two_revisions_would_share() -> None:
    plain, blue = rendered("istiod", {}), rendered("istiod", {"revision": "blue"})
    assert not set(plain) & set(blue)
    selector = {"app": "istiod", "istio.io/rev": "blue"}
    assert (
        blue["Service/istiod-blue"]["spec"]["selector"]
        == blue["Deployment/istiod-blue"]["spec"]["selector"]["matchLabels"]
        == selector
    )
    webhooks = blue["MutatingWebhookConfiguration/istio-sidecar-injector-blue"]["webhooks"]
    assert [w["name"].removesuffix(".sidecar-injector.istio.io") for w in webhooks] == ["rev.namespace", "rev.object"]


def test_names_of_what_is_of_the_whole_cluster_have_the_namespace() -> None:
    found = rendered("istiod", {"global": {"istioNamespace": "mesh"}}, "mesh")
    assert "MutatingWebhookConfiguration/istio-sidecar-injector-mesh" in found
    assert {n for n in found if n.startswith("ClusterRole/")} == {
        "ClusterRole/istiod-clusterrole-mesh",
        "ClusterRole/istiod-gateway-controller-mesh",
        "ClusterRole/istio-reader-clusterrole-mesh",
    }


AWAY = {"key": "a", "operator": "In", "values": "b,c", "topologyKey": "zone"}
FIRST = "spec.template.spec.containers.0"
# Values of a chart, the object and the path that they set, and what is there; "absent" where the object is not there.
SETS = {
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
    "istiod one replica has none": ("istiod", {}, "PodDisruptionBudget/istiod", "absent"),
    "istiod pilot.x is x": (
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
    "istiod a whole image": (
        "istiod",
        {"image": "h/pyistiod:1", "tag": "other"},
        f"Deployment/istiod {FIRST}.image",
        "h/pyistiod:1",
    ),
    "istiod memory is scaled by, too": (
        "istiod",
        {"memory": {"targetAverageUtilization": 70}},
        "HorizontalPodAutoscaler/istiod spec.metrics.1.resource.name",
        "memory",
    ),
    "istiod resources without null": (
        "istiod",
        {"resources": {"requests": {"cpu": None}}},
        f"Deployment/istiod {FIRST}.resources",
        {"requests": {"memory": "2048Mi"}},
    ),
    "istiod profile": ("istiod", {"profile": "demo"}, f"Deployment/istiod {FIRST}.resources.requests.memory", "100Mi"),
    "istiod what a user says comes before the profile": (
        "istiod",
        {"profile": "demo", "resources": {"requests": {"memory": "1Gi"}}},
        f"Deployment/istiod {FIRST}.resources.requests.memory",
        "1Gi",
    ),
    "istiod elsewhere, by an address": (
        "istiod",
        {"profile": "remote", "global": {"remotePilotAddress": "10.0.0.1"}},
        "EndpointSlice/istiod addressType",
        "IPv4",
    ),
    "istiod elsewhere, by a name": (
        "istiod",
        {"profile": "remote", "global": {"remotePilotAddress": "a.example.com"}},
        "Service/istiod spec.externalName",
        "a.example.com",
    ),
    "istiod elsewhere has no process": ("istiod", {"profile": "remote"}, "Deployment/istiod", "absent"),
    "istiod only of the cluster": ("istiod", {"global": {"resourceScope": "cluster"}}, "Deployment/istiod", "absent"),
    "istiod only of the namespace": (
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
    "istiod a class of gateways": (
        "istiod",
        {"gatewayClasses": {"istio": {"service": {"spec": {"type": "ClusterIP"}}}}},
        "ConfigMap/istio-default-gatewayclass-istio data.service",
        "spec:\n  type: ClusterIP\n",
    ),
    "base without a definition": (
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
    "base validates for none": (
        "base",
        {"defaultRevision": ""},
        "ValidatingWebhookConfiguration/istiod-default-validator",
        "absent",
    ),
    "base with a certificate must be asked": (
        "base",
        {"base": {"validationCABundle": "QQ=="}},
        "ValidatingWebhookConfiguration/istiod-default-validator webhooks.0.failurePolicy",
        "Fail",
    ),
    "gateway named by a value": (
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
    "cni as a version did": (
        "cni",
        {"compatibilityVersion": "1.26"},
        "ConfigMap/istio-cni-config data.AMBIENT_RECONCILE_POD_RULES_ON_STARTUP",
        "false",
    ),
    "ztunnel takes global values": (
        "ztunnel",
        {"global": {"hub": "h"}},
        f"DaemonSet/ztunnel {FIRST}.image",
        "h/ztunnel:latest",
    ),
    "ztunnel by another name": (
        "ztunnel",
        {"resourceName": "zt"},
        "DaemonSet/zt spec.template.spec.serviceAccountName",
        "zt",
    ),
}


@pytest.mark.parametrize("case", SETS)
def test_a_value_sets_what_it_should(case: str) -> None:
    name, values, place, want = SETS[case]
    key, _, path = place.partition(" ")
    found: Any = rendered(name, values).get(key, "absent")
    for part in filter(None, path.split(".")):
        found = found[int(part) if isinstance(found, list) else part]
    assert found == want


@pytest.mark.parametrize("word", ["profile", "platform", "compatibilityVersion"])
def test_a_layer_that_is_not_there_is_named(word: str) -> None:
    with pytest.raises(ChartError, match=r"unknown (profile|platform|compatibility version) 0\.9"):
        rendered("istiod", {word: "0.9"})


def test_the_control_plane_reads_the_config_maps_of_its_chart() -> None:
    found = rendered(
        "istiod",
        {"meshConfig": {"accessLogFile": "/dev/stdout"}, "sidecarInjectorWebhook": {"templates": {"mine": "spec: {}"}}},
    )
    mesh, problems = decode_mesh_config([yaml.safe_load(found["ConfigMap/istio"]["data"]["mesh"])])
    assert mesh is not None
    assert not [p for p in problems if p.severity is Severity.ERROR]
    assert mesh.access_log_file == "/dev/stdout"
    data = found["ConfigMap/istio-sidecar-injector"]["data"]
    config = decode_config(data["config"], data["values"])
    assert {"sidecar", "gateway", "waypoint", "mine"} <= set(config.templates)


def test_injection_from_files_has_the_values_of_the_chart() -> None:
    chosen = yaml.safe_load(rendered("istiod", {})["ConfigMap/istio-sidecar-injector"]["data"]["values"])
    ours = default_values()
    assert [
        key for key in ours["global"] if chosen["global"].get(key, ours["global"][key]) != ours["global"][key]
    ] == []
    assert chosen["pilot"] == ours["pilot"]
    assert chosen["sidecarInjectorWebhook"].items() >= ours["sidecarInjectorWebhook"].items()


def test_roles_grant_the_requests_of_the_tables_and_no_others() -> None:
    found = rendered("istiod", {})
    assert found["ClusterRole/istiod-clusterrole-istio-system"]["rules"] == roles()["cluster"]
    assert found["Role/istiod"]["rules"] == rules(OWN_NAMESPACE)
    assert found["ClusterRole/istio-reader-clusterrole-istio-system"]["rules"] == roles()["reader"]
    granted = [
        (g, r, v)
        for rule in roles()["cluster"]
        for g in rule["apiGroups"]
        for r in rule["resources"]
        for v in rule["verbs"]
    ]
    assert not [row for row in granted if "*" in row]


def test_analysis_may_write_statuses_where_it_is_switched_on() -> None:
    analysis = roles()["analysis"]
    granted = {(*rule["verbs"], resource.endswith("/status")) for rule in analysis for resource in rule["resources"]}
    assert granted == {("get", False), ("patch", True)}
    for values in ({"global": {"istiod": {"enableAnalysis": True}}}, {"env": {"PILOT_ENABLE_ANALYSIS": "true"}}):
        assert rendered("istiod", values)["ClusterRole/istiod-clusterrole-istio-system"]["rules"] == [
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
def test_requests_of_workloads_may_be_approved_for_the_signers_of_an_installation_alone(
    values: dict[str, Any], signers: list[str]
) -> None:
    approves = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["signers"],
        "resourceNames": signers,
        "verbs": ["approve"],
    }
    for external, more in (("ISTIOD_RA_KUBERNETES_API", [*roles()["signing"], approves]), ("", [])):
        found = rendered("istiod", {**values, "env": {**values["env"], "EXTERNAL_CA": external}})
        assert found["ClusterRole/istiod-clusterrole-istio-system"]["rules"] == [*roles()["cluster"], *more]


def test_services_may_be_exported_where_that_is_switched_on() -> None:
    found = rendered("istiod", {"env": {"ENABLE_MCS_AUTO_EXPORT": "true"}})
    assert found["ClusterRole/istiod-clusterrole-istio-system"]["rules"] == [*roles()["cluster"], *roles()["exports"]]


def test_a_trust_bundle_may_be_written_where_it_is_switched_on() -> None:
    attests = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["signers"],
        "resourceNames": ["istio.io/istiod-ca"],
        "verbs": ["attest"],
    }
    found = rendered("istiod", {"env": {"ENABLE_CLUSTER_TRUST_BUNDLE_API": "true"}})
    assert found["ClusterRole/istiod-clusterrole-istio-system"]["rules"] == [
        *roles()["cluster"],
        *roles()["bundles"],
        attests,
    ]


def test_rules_join_resources_of_equal_verbs() -> None:
    rows = [
        ResourceAccess("g", "b", ("list",), ""),
        ResourceAccess("g", "a", ("list",), ""),
        ResourceAccess("g", "b", ("get",), ""),
        ResourceAccess("", "a", ("list",), ""),
    ]
    assert rules(rows) == [
        {"apiGroups": [""], "resources": ["a"], "verbs": ["list"]},
        {"apiGroups": ["g"], "resources": ["b"], "verbs": ["get", "list"]},
        {"apiGroups": ["g"], "resources": ["a"], "verbs": ["list"]},
    ]
