"""What the settings of an IstioOperator do to the objects of an installation."""

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


def installed(
    spec: dict[str, Any], assignments: tuple[str, ...] = (), warnings: list[str] | None = None
) -> Installation:
    settings = user_settings((), assignments)
    settings["spec"] = {**spec, **settings["spec"]}
    return render_installation(settings, (warnings if warnings is not None else []).append)


def objects(spec: dict[str, Any], *assignments: str, warnings: list[str] | None = None) -> dict[str, Any]:
    found = installed(spec, assignments, warnings).objects()
    return {
        "/".join(filter(None, (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]))): o for o in found
    }


def pilot(k8s: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**MINIMAL, **spec, "components": {"pilot": {"k8s": k8s}}}


def pod_of(found: dict[str, Any], key: str = "Deployment/istio-system/istiod") -> dict[str, Any]:
    pod: dict[str, Any] = found[key]["spec"]["template"]["spec"]
    return pod


def wrong(spec: dict[str, Any], *assignments: str) -> str:
    with pytest.raises(SettingsError) as caught:
        installed(spec, assignments)
    return str(caught.value)


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
def test_a_profile_switches_on_its_components(name: str) -> None:
    found = installed({"profile": name})
    assert {chosen.name or "base" for chosen, _ in found.components} == PROFILES[name]


def test_every_profile_is_in_the_table() -> None:
    assert profile_names() == sorted(PROFILES)


def test_the_same_settings_give_the_same_text() -> None:
    assert manifest_text(installed({}).objects()) == manifest_text(installed({}).objects())


def test_objects_stand_in_the_order_in_which_they_can_be_applied() -> None:
    kinds = [o["kind"] for o in installed({}).objects()]
    first = {kind: kinds.index(kind) for kind in kinds}
    assert (
        first["CustomResourceDefinition"]
        < first["ServiceAccount"]
        < first["ClusterRoleBinding"]
        < first["ConfigMap"]
        < first["Deployment"]
    )
    assert first["Deployment"] < first["HorizontalPodAutoscaler"] < first["Service"]


def test_files_are_laid_over_each_other_and_flags_over_them() -> None:
    one = "spec: {hub: a, components: {pilot: {k8s: {env: [{name: A}], nodeSelector: {x: '1'}}}}}"
    two = "spec: {components: {pilot: {k8s: {env: [{name: B}], nodeSelector: {y: '2'}}}}}"
    found = user_settings([("one", one), ("two", two)], ["hub=b", "tag=1.10"])
    assert found["spec"]["hub"] == "b"
    assert found["spec"]["tag"] == "1.10"
    assert found["spec"]["components"]["pilot"]["k8s"] == {"env": [{"name": "B"}], "nodeSelector": {"x": "1", "y": "2"}}


SETS = {
    "values.a.b=1": {"values": {"a": {"b": 1}}},
    "values.a=1.5": {"values": {"a": 1.5}},
    "values.a=true": {"values": {"a": True}},
    "values.a=x\\,y": {"values": {"a": "x,y"}},
    r"values.a\.b=c": {"values": {"a.b": "c"}},
    "components.ingressGateways[0].name=x": {"components": {"ingressGateways": [{"name": "x"}]}},
    "components.ingressGateways.[0].name=x": {"components": {"ingressGateways": [{"name": "x"}]}},
    "meshConfig.defaultConfig.proxyMetadata.A=1": {"meshConfig": {"defaultConfig": {"proxyMetadata": {"A": "1"}}}},
}


@pytest.mark.parametrize("text", SETS)
def test_an_assignment_sets_what_its_path_says(text: str) -> None:
    tree: dict[str, Any] = {}
    assign(tree, text)
    assert tree == {"spec": SETS[text]}


@pytest.mark.parametrize("text", ["values.a", "components.ingressGateways[name:none].enabled=true", "values.a[x]=1"])
def test_an_assignment_that_leads_nowhere_is_refused(text: str) -> None:
    with pytest.raises(PathError):
        assign({"spec": {"components": {"ingressGateways": []}}}, text)


def test_paths_keep_what_is_in_brackets_and_behind_backslashes() -> None:
    assert split_path(r"a.b[0].c\.d") == ["a", "b", "[0]", "c.d"]
    assert overlay_path(r"spec.[name:a\.b].x\.y/z.[-1]") == ["spec", "[name:a.b]", "x.y/z", "[-1]"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a profile that there is not": ({"profile": "tiny"}, "spec.profile: unknown profile tiny"),
    "a field that there is not": ({"addonComponents": {}}, "spec.addonComponents: unknown field"),
    "a misspelt field": (pilot({"replicaCounts": 1}), "did you mean replicaCount?"),
    "a quoted switch": (
        {"components": {"base": {"enabled": "true"}}},
        'spec.components.base.enabled: expected a boolean (true or false), got the string "true"; remove the quotes',
    ),
    "a quoted value": (
        {"values": {"pilot": {"autoscaleEnabled": "false"}}},
        'got the string "false"; remove the quotes',
    ),
    "an amount": (
        pilot({"resources": {"limits": {"cpu": "much"}}}),
        "spec.components.pilot.k8s.resources.limits[cpu]: quantities must match",
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
    "a status": ({"status": {}}, "spec.status: unknown field"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_its_path(case: str) -> None:
    spec, message = WRONG[case]
    assert message in wrong(spec)


def test_low_ports_need_root() -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 80}]
    spec = {"components": {"ingressGateways": [{"name": "istio-ingressgateway", "k8s": {"service": {"ports": ports}}}]}}
    assert "port http/80: targetPort 80 requires root" in wrong(spec)
    found = objects({**spec, "values": {"gateways": {"istio-ingressgateway": {"runAsRoot": True}}}})
    assert (
        pod_of(found, "Deployment/istio-system/istio-ingressgateway")["containers"][0]["ports"][0]["containerPort"]
        == 80
    )


def test_force_goes_on_in_spite_of_wrong_settings_but_not_of_a_quoted_switch() -> None:
    settings = user_settings((), ["revision=a_b"])
    assert render_installation(settings, print, force=True).components
    with pytest.raises(SettingsError):
        render_installation(
            user_settings([("f", "spec: {components: {base: {enabled: 'true'}}}")], ()), print, force=True
        )


def test_two_objects_in_one_file_are_refused() -> None:
    with pytest.raises(SettingsError, match="expected one IstioOperator"):
        user_settings([("f.yaml", "kind: A\n---\nkind: B\n")], ())


def test_settings_of_the_spec_and_values_have_their_order() -> None:
    spec = {
        "hub": "a",
        "meshConfig": {"accessLogFile": "/spec"},
        "values": {"global": {"hub": "b"}, "meshConfig": {"accessLogFile": "/values"}},
    }
    found = merge_inputs({"spec": spec})
    assert value_at(found, "spec.values.global.hub") == "b"
    assert value_at(found, "spec.values.meshConfig.accessLogFile") == "/spec"


@pytest.mark.parametrize("enabled", [True, False])
def test_whether_pods_need_no_init_container_is_what_the_component_says(enabled: bool) -> None:
    found = merge_inputs(
        {"spec": {"components": {"cni": {"enabled": enabled}}, "values": {"pilot": {"cni": {"enabled": not enabled}}}}}
    )
    assert value_at(found, "spec.values.pilot.cni.enabled") is enabled


def test_k8s_settings_are_merged_into_the_objects() -> None:
    found = objects(
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
    deployment, pod = found["Deployment/istio-system/istiod"], pod_of(found)
    container = pod["containers"][0]
    variables = {v["name"]: v.get("value") for v in container["env"]}
    assert (variables["PILOT_TRACE_SAMPLING"], variables["NEW"], variables["REVISION"]) == ("7", "x", "default")
    assert pod["nodeSelector"] == {"a": "b"}
    assert deployment["spec"]["template"]["metadata"]["annotations"]["c"] == "d"
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": "25%"}
    assert container["resources"] == {"requests": {"cpu": "500m", "memory": "2048Mi"}, "limits": {"memory": "1Gi"}}
    assert "v" in {v["name"] for v in pod["volumes"]}
    assert "/v" in {m["mountPath"] for m in container["volumeMounts"]}
    assert found["PodDisruptionBudget/istio-system/istiod"]["spec"].keys() == {"maxUnavailable", "selector"}
    service = found["Service/istio-system/istiod"]
    assert service["spec"]["type"] == "NodePort"
    assert service["spec"]["ports"][0]["port"] == 9999
    assert service["metadata"]["annotations"] == {"e": "f"}
    assert found["HorizontalPodAutoscaler/istio-system/istiod"]["spec"]["minReplicas"] == 2


def patched(*patches: tuple[str, Any], warnings: list[str] | None = None) -> dict[str, Any]:
    rows = [{"path": path} if value is None else {"path": path, "value": value} for path, value in patches]
    return objects(pilot({"overlays": [{"kind": "Deployment", "name": "istiod", "patches": rows}]}), warnings=warnings)


def test_overlays_set_add_and_delete() -> None:
    base = "spec.template.spec.containers.[name:discovery]"
    found = pod_of(
        patched(
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
    container = found["containers"][0]
    assert (container["image"], container["args"][-1]) == ("mine", "--more")
    assert "--Domain" in container["args"]
    assert "PLATFORM" not in {v["name"] for v in container["env"]}
    assert "debug" in {p["name"] for p in container["ports"]}
    assert found["dnsConfig"] == {"options": [{"name": "ndots"}]}
    assert found["tolerations"] == [{"key": "only"}]
    assert found["securityContext"] == {"fsGroup": 1, "runAsUser": 2}


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
def test_an_overlay_that_matches_nothing_is_said_and_changes_nothing(path: str, value: Any, message: str) -> None:
    warnings: list[str] = []
    spec = pilot(
        {
            "replicaCount": 1,
            "overlays": [{"kind": "Deployment", "name": "istiod", "patches": [{"path": path, "value": value}]}],
        }
    )
    found = objects(spec, warnings=warnings)
    assert found == objects(pilot({"replicaCount": 1}))
    assert any(message in text and "Deployment istiod" in text for text in warnings), warnings


def test_an_overlay_of_an_object_that_there_is_not_is_said() -> None:
    warnings: list[str] = []
    objects(pilot({"overlays": [{"kind": "Pod", "name": "x", "patches": []}]}), warnings=warnings)
    assert warnings == ["overlay of Pod x: component Pilot has no such object"]


def test_a_gateway_without_a_name_has_the_standard_one() -> None:
    found = objects(
        MINIMAL, "components.ingressGateways[0].enabled=true", "components.ingressGateways[0].namespace=edge"
    )
    assert "Deployment/edge/istio-ingressgateway" in found


def test_components_are_in_the_system_namespace_unless_they_say_another_and_the_namespace_of_the_spec_has_no_effect() -> (
    None
):
    gateways = [{"name": "a"}, {"name": "b", "namespace": "other", "label": {"istio": "b"}}]
    said: list[str] = []
    spec = {
        "profile": "empty",
        "namespace": "edge",
        "components": {"ingressGateways": gateways},
        "values": {"global": {"istioNamespace": "mesh"}},
    }
    found = render_installation({"spec": spec}, said.append).objects()
    places = {
        (plain["metadata"]["namespace"], plain["metadata"]["name"]) for plain in found if plain["kind"] == "Deployment"
    }
    assert places == {("mesh", "a"), ("other", "b")}
    assert said == [
        "spec.namespace: has no effect: components are installed in values.global.istioNamespace or their own namespace"
    ]


def test_a_gateway_is_switched_on_by_its_values_too() -> None:
    found = objects({**MINIMAL, "values": {"gateways": {"istio-egressgateway": {"enabled": True}}}})
    assert "Deployment/istio-system/istio-egressgateway" in found


def test_values_that_no_schema_knows_reach_the_charts() -> None:
    found = objects({**MINIMAL, "unvalidatedValues": {"pilot": {"image": "x/y:z", "house": 1}}})
    assert pod_of(found)["containers"][0]["image"] == "x/y:z"


def test_helm_gets_the_values_and_is_told_what_it_cannot_say() -> None:
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


def test_the_json_schema_has_every_field_once() -> None:
    schema = json.loads(json_schema())
    types = schema["$defs"]
    assert set(types["Spec"]["properties"]) == set(TYPES["Spec"].fields)
    assert types["Spec"]["additionalProperties"] is False
    named = set(re.findall(r'"#/\$defs/(\w+)"', json_schema()))
    assert named == set(types)
