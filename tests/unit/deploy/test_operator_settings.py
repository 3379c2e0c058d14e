"""Settings of an IstioOperator and the rendered objects."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from deploy.operator.errors import SettingsError
from deploy.operator.helm_releases import helm_releases
from deploy.operator.inputs import merge_inputs, profile_names, user_settings
from deploy.operator.json_schema import json_schema
from deploy.operator.manifest import Installation, manifest_text, render_installation
from deploy.operator.overlays import overlay_path
from deploy.operator.schema import TYPES
from deploy.operator.settings_tree import PathError, assign, split_path, value_at

pytestmark = pytest.mark.slow

MINIMAL = {"profile": "minimal"}


def render_settings(
    spec: dict[str, Any], assignments: tuple[str, ...] = (), warnings: list[str] | None = None
) -> Installation:
    settings = user_settings((), assignments).plain
    settings["spec"] = {**spec, **settings["spec"]}
    return render_installation(settings, (warnings if warnings is not None else []).append)


def objects(spec: dict[str, Any], *assignments: str, warnings: list[str] | None = None) -> dict[str, Any]:
    rendered = render_settings(spec, assignments, warnings).objects()
    return {
        "/".join(filter(None, (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]))): o for o in rendered
    }


def pilot(k8s: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**MINIMAL, **spec, "components": {"pilot": {"k8s": k8s}}}


def pod_of(rendered: dict[str, Any], key: str = "Deployment/istio-system/istiod") -> dict[str, Any]:
    pod: dict[str, Any] = rendered[key]["spec"]["template"]["spec"]
    return pod


def settings_error(spec: dict[str, Any], *assignments: str) -> str:
    with pytest.raises(SettingsError) as raised:
        render_settings(spec, assignments)
    return str(raised.value)


PROFILES = {
    "default": {"base", "istiod", "istio-ingressgateway"},
    "minimal": {"base", "istiod"},
    "empty": set(),
    "demo": {"base", "istiod", "istio-ingressgateway", "istio-egressgateway"},
    "ambient": {"base", "istiod", "istio-cni-node", "ztunnel"},
    "remote": {"base", "istiod"},
    "openshift": {"base", "istiod", "istio-ingressgateway", "istio-cni-node"},
    "openshift-ambient": {"base", "istiod", "istio-cni-node", "ztunnel"},
    "preview": {"base", "istiod", "istio-ingressgateway"},
    "stable": {"base", "istiod", "istio-ingressgateway"},
}


@pytest.mark.parametrize("name", PROFILES)
def test_components_of_profiles(name: str) -> None:
    installation = render_settings({"profile": name})
    assert {component.name or "base" for component, _ in installation.components} == PROFILES[name]


def test_profile_names() -> None:
    assert profile_names() == sorted(PROFILES)


def test_rendering_is_deterministic() -> None:
    assert manifest_text(render_settings({}).objects()) == manifest_text(render_settings({}).objects())


def test_objects_are_in_apply_order() -> None:
    kinds = [o["kind"] for o in render_settings({}).objects()]
    first = {kind: kinds.index(kind) for kind in kinds}
    assert (
        first["CustomResourceDefinition"]
        < first["ServiceAccount"]
        < first["ClusterRoleBinding"]
        < first["ConfigMap"]
        < first["Deployment"]
    )
    assert first["Deployment"] < first["HorizontalPodAutoscaler"] < first["Service"]


def test_later_files_and_flags_override() -> None:
    one = "spec: {hub: a, components: {pilot: {k8s: {env: [{name: A}], nodeSelector: {x: '1'}}}}}"
    two = "spec: {components: {pilot: {k8s: {env: [{name: B}], nodeSelector: {y: '2'}}}}}"
    settings = user_settings([("one", one), ("two", two)], ["hub=b", "tag=1.10"]).plain
    assert settings["spec"]["hub"] == "b"
    assert settings["spec"]["tag"] == "1.10"
    assert settings["spec"]["components"]["pilot"]["k8s"] == {
        "env": [{"name": "B"}],
        "nodeSelector": {"x": "1", "y": "2"},
    }


ASSIGNMENTS = {
    "values.a.b=1": {"values": {"a": {"b": 1}}},
    "values.a=1.5": {"values": {"a": 1.5}},
    "values.a=true": {"values": {"a": True}},
    "values.a=x\\,y": {"values": {"a": "x,y"}},
    r"values.a\.b=c": {"values": {"a.b": "c"}},
    "components.ingressGateways[0].name=x": {"components": {"ingressGateways": [{"name": "x"}]}},
    "components.ingressGateways.[0].name=x": {"components": {"ingressGateways": [{"name": "x"}]}},
    "meshConfig.defaultConfig.proxyMetadata.A=1": {"meshConfig": {"defaultConfig": {"proxyMetadata": {"A": "1"}}}},
}


@pytest.mark.parametrize("text", ASSIGNMENTS)
def test_assignments(text: str) -> None:
    tree: dict[str, Any] = {}
    assign(tree, text)
    assert tree == {"spec": ASSIGNMENTS[text]}


@pytest.mark.parametrize("text", ["values.a", "components.ingressGateways[name:none].enabled=true", "values.a[x]=1"])
def test_invalid_assignments(text: str) -> None:
    with pytest.raises(PathError):
        assign({"spec": {"components": {"ingressGateways": []}}}, text)


def test_split_path() -> None:
    assert split_path(r"a.b[0].c\.d") == ["a", "b", "[0]", "c.d"]
    assert overlay_path(r"spec.[name:a\.b].x\.y/z.[-1]") == ["spec", "[name:a.b]", "x.y/z", "[-1]"]


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown profile": ({"profile": "tiny"}, "spec.profile: unknown profile tiny"),
    "an unknown field": ({"addonComponents": {}}, "spec.addonComponents: unknown field"),
    "a misspelt field": (pilot({"replicaCounts": 1}), "did you mean replicaCount?"),
    "a quoted boolean": (
        {"components": {"base": {"enabled": "true"}}},
        'spec.components.base.enabled: expected a boolean (true or false), got the string "true"; remove the quotes',
    ),
    "a quoted value": (
        {"values": {"pilot": {"autoscaleEnabled": "false"}}},
        'got the string "false"; remove the quotes',
    ),
    "a quantity": (
        pilot({"resources": {"limits": {"cpu": "much"}}}),
        "spec.components.pilot.k8s.resources.limits[cpu]: 'much' is not a quantity; write 500m (CPU) or 512Mi (memory)",
    ),
    "a revision with dots": ({"revision": "1.2"}, "spec.revision: invalid revision 1.2"),
    "a hub": ({"hub": "a b"}, "spec.hub: invalid hub"),
    "a tag": ({"tag": "a b"}, "spec.tag: invalid tag"),
    "a mesh config": ({"meshConfig": {"accessLogEncoding": "XML"}}, "spec.meshConfig.accessLogEncoding"),
    "ranges": (
        {"values": {"global": {"proxy": {"includeIPRanges": "10.0.0.0"}}}},
        "includeIPRanges: invalid range 10.0.0.0",
    ),
    "ports": (
        {"values": {"global": {"proxy": {"excludeInboundPorts": "80,x"}}}},
        "spec.values.global.proxy.excludeInboundPorts: invalid port x",
    ),
    "a toleration": (
        {"values": {"pilot": {"tolerations": [{"kee": "a"}]}}},
        "spec.values.pilot.tolerations[0].kee: unknown field",
    ),
    "a gateway's name": (
        {"components": {"ingressGateways": [{"name": "A_B"}]}},
        "spec.components.ingressGateways[0].name: invalid name A_B",
    ),
    "a platform": ({"values": {"global": {"platform": "vax"}}}, "unknown platform vax"),
    "a version": ({"compatibilityVersion": "1.3"}, "unknown compatibility version 1.3"),
    "a gateway instead of a list": (
        {"components": {"ingressGateways": {"enabled": False}}},
        "expected a list, got a mapping: write a list: - enabled: false",
    ),
    "a field that is not indented": (
        {"components": {"enabled": True}},
        "spec.components.enabled: unknown field enabled; it belongs below a field such as base: write components.base.enabled",
    ),
    "a value outside values": (
        {"pilot": {"autoscaleMin": 2}},
        "spec.pilot: unknown field pilot; did you mean values.pilot.autoscaleMin?",
    ),
    "several values outside values": (
        {"pilot": {"autoscaleMin": 2, "autoscaleMax": 3}},
        "spec.pilot: unknown field pilot; did you mean values.pilot?",
    ),
    "an unescaped dot": (
        {"values": {"pilot": {"nodeSelector": {"kubernetes": {"io/os": "linux"}}}}},
        "spec.values.pilot.nodeSelector.kubernetes: expected a string, got a mapping; escape dots in keys: kubernetes\\.io/os",
    ),
    "two gateways of a name": (
        {"components": {"ingressGateways": [{"name": "gw"}, {"name": "gw"}]}},
        "spec.components.ingressGateways[1].name: another gateway has the name gw; rename one",
    ),
    "a repeated port": (
        pilot({"service": {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}}),
        "k8s.service.ports[1].port: 80 occurs twice; remove one",
    ),
    "replicas in values": (
        {"values": {"pilot": {"autoscaleMin": 5, "autoscaleMax": 2}}},
        "spec.values.pilot.autoscaleMin: 5 is more than autoscaleMax, 2",
    ),
    "a log level": (
        {"values": {"global": {"logging": {"level": "default:verbose"}}}},
        "spec.values.global.logging.level: default: 'verbose' is not a log level",
    ),
    "a misspelt platform": (
        {"values": {"global": {"platform": "openshft"}}},
        "spec.values.global.platform: unknown platform openshft: use one of gke, k3d, k3s, microk8s, minikube, openshift; "
        "did you mean openshift?",
    ),
    "a status": ({"status": {}}, "spec.status: unknown field"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_settings(case: str) -> None:
    spec, message = INVALID[case]
    assert message in settings_error(spec)


def test_field_outside_the_spec_has_its_line() -> None:
    with pytest.raises(
        SettingsError, match=r"^o\.yaml:2: meshConfig: did you mean spec\.meshConfig\? check the indent"
    ):
        user_settings((("o.yaml", "kind: IstioOperator\nmeshConfig: {}\n"),), ())


def test_low_ports_need_root() -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 80}]
    spec = {"components": {"ingressGateways": [{"name": "istio-ingressgateway", "k8s": {"service": {"ports": ports}}}]}}
    assert "port http/80: targetPort 80 requires root" in settings_error(spec)
    rendered = objects({**spec, "values": {"gateways": {"istio-ingressgateway": {"runAsRoot": True}}}})
    assert (
        pod_of(rendered, "Deployment/istio-system/istio-ingressgateway")["containers"][0]["ports"][0]["containerPort"]
        == 80
    )


def test_force_ignores_errors_except_quoted_booleans() -> None:
    settings = user_settings((), ["revision=a_b"]).plain
    assert render_installation(settings, print, force=True).components
    with pytest.raises(SettingsError):
        render_installation(
            user_settings([("f", "spec: {components: {base: {enabled: 'true'}}}")], ()).plain, print, force=True
        )


def test_two_objects_in_one_file_are_refused() -> None:
    with pytest.raises(SettingsError, match="expected one IstioOperator"):
        user_settings([("f.yaml", "kind: A\n---\nkind: B\n")], ())


def test_precedence_of_spec_and_values() -> None:
    spec = {
        "hub": "a",
        "meshConfig": {"accessLogFile": "/spec"},
        "values": {"global": {"hub": "b"}, "meshConfig": {"accessLogFile": "/values"}},
    }
    merged = merge_inputs({"spec": spec})
    assert value_at(merged, "spec.values.global.hub") == "b"
    assert value_at(merged, "spec.values.meshConfig.accessLogFile") == "/spec"


@pytest.mark.parametrize("enabled", [True, False])
def test_cni_value_follows_the_component(enabled: bool) -> None:
    merged = merge_inputs(
        {"spec": {"components": {"cni": {"enabled": enabled}}, "values": {"pilot": {"cni": {"enabled": not enabled}}}}}
    )
    assert value_at(merged, "spec.values.pilot.cni.enabled") is enabled


def test_k8s_settings_are_merged_into_the_objects() -> None:
    rendered = objects(
        pilot(
            {
                "env": [{"name": "PILOT_TRACE_SAMPLING", "value": "7"}, {"name": "NEW", "value": "x"}],
                "hpaSpec": {"minReplicas": 2, "maxReplicas": 3},
                "nodeSelector": {"a": "b"},
                "podAnnotations": {"c": "d"},
                "podDisruptionBudget": {"maxUnavailable": 1},
                "serviceAnnotations": {"e": "f"},
                "service": {"ports": [{"name": "extra", "port": 9999}], "type": "NodePort"},
                "strategy": {"rollingUpdate": {"maxSurge": 1}},
                "resources": {"limits": {"memory": "1Gi"}},
                "volumes": [{"name": "v", "emptyDir": {}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        )
    )
    deployment, pod = rendered["Deployment/istio-system/istiod"], pod_of(rendered)
    container = pod["containers"][0]
    variables = {v["name"]: v.get("value") for v in container["env"]}
    assert (variables["PILOT_TRACE_SAMPLING"], variables["NEW"], variables["REVISION"]) == ("7", "x", "default")
    assert pod["nodeSelector"] == {"a": "b"}
    assert deployment["spec"]["template"]["metadata"]["annotations"]["c"] == "d"
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": "25%"}
    assert container["resources"] == {"requests": {"cpu": "500m", "memory": "2048Mi"}, "limits": {"memory": "1Gi"}}
    assert "v" in {v["name"] for v in pod["volumes"]}
    assert "/v" in {m["mountPath"] for m in container["volumeMounts"]}
    assert rendered["PodDisruptionBudget/istio-system/istiod"]["spec"].keys() == {"maxUnavailable", "selector"}
    service = rendered["Service/istio-system/istiod"]
    assert service["spec"]["type"] == "NodePort"
    assert service["spec"]["ports"][0]["port"] == 9999
    assert service["metadata"]["annotations"] == {"e": "f"}
    assert rendered["HorizontalPodAutoscaler/istio-system/istiod"]["spec"]["minReplicas"] == 2


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            pilot({"replicaCount": 3}),
            [
                "spec.components.pilot.k8s.replicaCount: the HorizontalPodAutoscaler istiod replaces 3 by a number from 1 to "
                "5; set values.pilot.autoscaleEnabled: false, or k8s.hpaSpec.minReplicas: 3 instead"
            ],
        ),
        (
            {"components": {"ingressGateways": [{"name": "a"}, {"name": "edge", "k8s": {"replicaCount": 2}}]}},
            [
                "spec.components.ingressGateways[1].k8s.replicaCount: the HorizontalPodAutoscaler edge replaces 2 by a "
                "number from 1 to 5; set values.gateways.istio-ingressgateway.autoscaleEnabled: false, or "
                "k8s.hpaSpec.minReplicas: 2 instead"
            ],
        ),
        (pilot({"replicaCount": 3}) | {"values": {"pilot": {"autoscaleEnabled": False}}}, []),
        (pilot({"replicaCount": 3, "hpaSpec": {"minReplicas": 3}}), []),
        (pilot({"replicaCount": 1}), []),
        (pilot({"replicaCount": 3}) | {"profile": "demo"}, []),
    ],
)
def test_replicas_that_an_autoscaler_overrides_are_reported(spec: dict[str, Any], expected: list[str]) -> None:
    warnings: list[str] = []
    objects(spec, warnings=warnings)
    assert [text for text in warnings if "replica" in text] == expected


def render_overlay(*patches: tuple[str, Any], warnings: list[str] | None = None) -> dict[str, Any]:
    rows = [{"path": path} if value is None else {"path": path, "value": value} for path, value in patches]
    return objects(pilot({"overlays": [{"kind": "Deployment", "name": "istiod", "patches": rows}]}), warnings=warnings)


def test_overlays() -> None:
    base = "spec.template.spec.containers.[name:discovery]"
    pod = pod_of(
        render_overlay(
            (f"{base}.image", "mine"),
            (f"{base}.args.[-1]", "--more"),
            (f"{base}.args.[:^--domain$]", "--Domain"),
            (f"{base}.env.[name:PLATFORM]", None),
            (f"{base}.ports.[containerPort:8080].name", "debug"),
            ("spec.template.spec.dnsConfig.options.[0].name", "ndots"),
            ("spec.template.spec.tolerations", [{"key": "only"}]),
            ("spec.template.spec.securityContext", "fsGroup: 1\nrunAsUser: 2\n"),
        )
    )
    container = pod["containers"][0]
    assert (container["image"], container["args"][-1]) == ("mine", "--more")
    assert "--Domain" in container["args"]
    assert "PLATFORM" not in {v["name"] for v in container["env"]}
    assert "debug" in {p["name"] for p in container["ports"]}
    assert pod["dnsConfig"] == {"options": [{"name": "ndots"}]}
    assert pod["tolerations"] == [{"key": "only"}]
    assert pod["securityContext"] == {"fsGroup": 1, "runAsUser": 2}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("spec.template.spec.containers.[name:none].image", "x", "item [name:none] does not exist"),
        ("spec.none", None, "none to delete does not exist"),
        ("spec.template.spec.containers.name", "x", "expected [index], [key:value] or [:value]"),
        ("spec.replicas.x", 1, "x is below a value that is not a mapping"),
        ("spec.template.[name:x]", 1, "selects from a value that is not a list"),
        ("", 1, "the path is empty"),
    ],
)
def test_overlay_without_a_match_is_reported(path: str, value: Any, message: str) -> None:
    warnings: list[str] = []
    spec = pilot(
        {
            "replicaCount": 1,
            "overlays": [{"kind": "Deployment", "name": "istiod", "patches": [{"path": path, "value": value}]}],
        }
    )
    rendered = objects(spec, warnings=warnings)
    assert rendered == objects(pilot({"replicaCount": 1}))
    assert any(message in text and "Deployment istiod" in text for text in warnings), warnings


def test_overlay_of_a_missing_object_is_reported() -> None:
    warnings: list[str] = []
    overlays = [{"kind": "Pod", "name": "x", "patches": []}, {"kind": "Deployment", "name": "istio-pilot"}]
    objects(pilot({"overlays": overlays}), warnings=warnings)
    assert warnings == [
        "spec.components.pilot.k8s.overlays[0].name: component Pilot has no Pod x",
        "spec.components.pilot.k8s.overlays[1].name: component Pilot has no Deployment istio-pilot; it has istiod",
    ]


def test_default_gateway_name() -> None:
    rendered = objects(
        MINIMAL, "components.ingressGateways[0].enabled=true", "components.ingressGateways[0].namespace=edge"
    )
    assert "Deployment/edge/istio-ingressgateway" in rendered


def test_namespaces_of_components() -> None:
    gateways = [{"name": "a"}, {"name": "b", "namespace": "other", "label": {"istio": "b"}}]
    warnings: list[str] = []
    spec = {
        "profile": "empty",
        "namespace": "edge",
        "components": {"ingressGateways": gateways},
        "values": {"global": {"istioNamespace": "mesh"}},
    }
    rendered = render_installation({"spec": spec}, warnings.append).objects()
    deployments = {
        (plain["metadata"]["namespace"], plain["metadata"]["name"])
        for plain in rendered
        if plain["kind"] == "Deployment"
    }
    assert deployments == {("mesh", "a"), ("other", "b")}
    assert warnings == [
        "spec.namespace: has no effect: components are installed in values.global.istioNamespace or their own namespace"
    ]


def test_gateway_is_enabled_by_values() -> None:
    rendered = objects({**MINIMAL, "values": {"gateways": {"istio-egressgateway": {"enabled": True}}}})
    assert "Deployment/istio-system/istio-egressgateway" in rendered


def test_unvalidated_values_reach_the_charts() -> None:
    rendered = objects({**MINIMAL, "unvalidatedValues": {"pilot": {"image": "x/y:z", "house": 1}}})
    assert pod_of(rendered)["containers"][0]["image"] == "x/y:z"


def test_helm_releases_and_unsupported_settings() -> None:
    warnings: list[str] = []
    settings = user_settings(
        (), ["profile=minimal", "components.pilot.k8s.nodeSelector.a=b", "components.pilot.k8s.replicaCount=2"]
    )
    releases = helm_releases(settings, warnings.append)
    assert [(r.name, r.chart, r.namespace) for r in releases] == [
        ("istio-base", "base", "istio-system"),
        ("istiod", "istiod", "istio-system"),
    ]
    assert releases[1].values["pilot"]["replicaCount"] == 2
    assert [w.partition(" ")[0] for w in warnings] == ["spec.components.pilot.k8s.nodeSelector"]


def test_json_schema() -> None:
    schema = json.loads(json_schema())
    types = schema["$defs"]
    assert set(types["Spec"]["properties"]) == set(TYPES["Spec"].fields)
    assert types["Spec"]["additionalProperties"] is False
    references = set(re.findall(r'"#/\$defs/(\w+)"', json_schema()))
    assert references == set(types)
