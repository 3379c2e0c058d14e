"""Deployments of Gateways: creation, updates, repair, deletion, and isolation from hostile input."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from deploy.chart.chart import installation_folder, read_chart
from deploy.chart.render import render
from pilot.config.group_kind import GATEWAY_API
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.control_planes.kube_plane import running
from testing.edits.gateway_objects import gateway_object
from testing.kube.kube_access import until, write_kubeconfig
from testing.mesh.objects import Plain, make

pytestmark = pytest.mark.slow

HTTP = "{name: http, port: 80, protocol: HTTP}"
KINDS = {
    "Deployment": ("apps", "deployments"),
    "Service": ("", "services"),
    "ServiceAccount": ("", "serviceaccounts"),
    "HorizontalPodAutoscaler": ("autoscaling", "horizontalpodautoscalers"),
    "PodDisruptionBudget": ("policy", "poddisruptionbudgets"),
}
NAME, CLASS, MANAGED = (
    "gateway.networking.k8s.io/gateway-name",
    "gateway.networking.k8s.io/gateway-class-name",
    "gateway.istio.io/managed",
)

NETWORK, MODE = "topology.istio.io/network", "istio.io/dataplane-mode"


@pytest.fixture(scope="module")
def injector() -> Plain:
    objects = render(
        read_chart(installation_folder() / "charts" / "istiod"),
        {"global": {"hub": "example.com/h", "tag": "1"}},
        "istio-system",
    )
    return next(
        item for item in objects if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", "istio-sidecar-injector")
    )


@pytest.fixture
async def server(injector: Plain) -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    for definition in (*definitions(), injector, make("Namespace", "a"), make("Namespace", "istio-system")):
        api_server.put(definition)
    await api_server.start()
    yield api_server
    await api_server.stop()


def gateway(spec: str = "", name: str = "gw", listeners: str = HTTP, **metadata: Any) -> Plain:
    more = f", {spec}" if spec else ""
    definition = gateway_object("Gateway", name, f"gatewayClassName: istio, listeners: [{listeners}]{more}", "a")
    definition["metadata"] |= {"uid": f"uid-of-{name}", "generation": 1, **metadata}
    return definition


def config_map(name: str, data: dict[str, Any], namespace: str = "a", **labels: str) -> Plain:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {key: yaml.safe_dump(value) for key, value in data.items()},
    }


def plane(server: ApiServer, tmp_path: pathlib.Path, environ: dict[str, str] | None = None) -> Any:
    return running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config")))


def child(server: ApiServer, kind: str, name: str = "gw-istio") -> Plain:
    return server.get(*KINDS[kind], "a", name) or {}


def deployed_kinds(server: ApiServer) -> set[str]:
    return {
        kind for kind, resource in KINDS.items() for key in server.store.collection(resource).objects if key[0] == "a"
    }


async def test_gateway_is_deployed(server: ApiServer, tmp_path: pathlib.Path) -> None:
    listeners = f"{HTTP}, {{name: s.x, port: 443, protocol: HTTPS}}"
    server.put(gateway(labels={"team": "blue"}, annotations={"example.com/cost": "low"}, listeners=listeners))
    async with plane(server, tmp_path):
        await until(lambda: deployed_kinds(server) == {"Deployment", "Service", "ServiceAccount"})
        for kind in ("Deployment", "Service", "ServiceAccount"):
            metadata = child(server, kind)["metadata"]
            assert (
                metadata["labels"].items()
                >= {NAME: "gw", CLASS: "istio", MANAGED: "istio.io-gateway-controller", "team": "blue"}.items()
            )
            assert metadata["annotations"]["example.com/cost"] == "low"
            owner = {"apiVersion": f"{GATEWAY_API}/v1", "kind": "Gateway", "name": "gw", "uid": "uid-of-gw"}
            assert metadata["ownerReferences"] == [owner], "garbage collected with its Gateway"
            assert {entry["manager"] for entry in metadata["managedFields"]} == {"istio.io/gateway-controller"}
        service = child(server, "Service")["spec"]
        assert (service["type"], service["selector"]) == ("LoadBalancer", {NAME: "gw"})
        assert [(port["name"], port["port"]) for port in service["ports"]] == [
            ("status-port", 15021),
            ("http", 80),
            ("s-x", 443),
        ]
        template = child(server, "Deployment")["spec"]["template"]
        assert template["spec"]["containers"][0]["image"] == "example.com/h/proxyv2:1"
        assert template["spec"]["serviceAccountName"] == "gw-istio"
        stored = server.get(GATEWAY_API, "gateways", "a", "gw")
        assert stored is not None
        assert stored["metadata"]["annotations"]["gateway.istio.io/controller-version"] == "5"


@pytest.mark.parametrize(
    ("class_name", "controller", "type_", "proxy_type"),
    [
        ("istio-waypoint", "istio.io-mesh-controller", "ClusterIP", "waypoint"),
        ("istio-east-west", "istio.io-eastwest-controller", "LoadBalancer", "waypoint"),
        ("istio", "istio.io-gateway-controller", "LoadBalancer", "router"),
    ],
)
async def test_templates_by_gateway_class(
    server: ApiServer, tmp_path: pathlib.Path, class_name: str, controller: str, type_: str, proxy_type: str
) -> None:
    definition = gateway(listeners="{name: mesh, port: 15008, protocol: HBONE}")
    server.put({**definition, "spec": {**definition["spec"], "gatewayClassName": class_name}})
    name = "gw-istio" if class_name == "istio" else "gw"
    async with plane(server, tmp_path, {"PILOT_ENABLE_AMBIENT": "true", "AMBIENT_ENABLE_MULTI_NETWORK": "true"}):
        await until(lambda: all(child(server, kind, name) for kind in ("Deployment", "Service", "ServiceAccount")))
        deployment, service = child(server, "Deployment", name), child(server, "Service", name)
        assert deployment["metadata"]["labels"][MANAGED] == service["metadata"]["labels"][MANAGED] == controller
        assert service["spec"]["type"] == type_
        template = deployment["spec"]["template"]
        assert template["spec"]["containers"][0]["args"][:2] == ["proxy", proxy_type]
        assert template["metadata"]["labels"]["istio.io/dataplane-mode"] == "none"


@pytest.mark.parametrize(
    ("class_name", "network", "labels", "expected"),
    [
        ("istio-waypoint", "n1", {}, "n1"),
        ("istio-waypoint", "n1", {NETWORK: "n2"}, "n2"),
        ("istio-waypoint", "", {}, None),
        ("istio", "n1", {}, None),
    ],
)
async def test_waypoint_is_labelled_with_its_network(
    server: ApiServer,
    injector: Plain,
    tmp_path: pathlib.Path,
    class_name: str,
    network: str,
    labels: dict[str, str],
    expected: str | None,
) -> None:
    values = yaml.safe_load(injector["data"]["values"])
    values["global"]["network"] = network
    server.put({**injector, "data": {**injector["data"], "values": yaml.safe_dump(values)}})
    definition = gateway(listeners="{name: mesh, port: 15008, protocol: HBONE}", labels=labels)
    server.put({**definition, "spec": {**definition["spec"], "gatewayClassName": class_name}})
    name = "gw-istio" if class_name == "istio" else "gw"
    async with plane(server, tmp_path, {"PILOT_ENABLE_AMBIENT": "true"}):
        await until(lambda: bool(child(server, "Deployment", name)))
        assert child(server, "Deployment", name)["metadata"]["labels"].get(NETWORK) == expected


@pytest.mark.parametrize(
    ("labels", "infrastructure", "mode"),
    [
        ({}, "", "none"),
        ({}, "infrastructure: {labels: {team: red}}", "none"),
        ({MODE: "ambient"}, "infrastructure: {labels: {team: red}}", None),
        ({}, f"infrastructure: {{labels: {{{MODE}: other}}}}", "other"),
    ],
)
async def test_gateway_is_excluded_from_ambient_by_default(
    server: ApiServer, tmp_path: pathlib.Path, labels: dict[str, str], infrastructure: str, mode: str | None
) -> None:
    server.put(gateway(infrastructure, labels=labels))
    async with plane(server, tmp_path, {"PILOT_ENABLE_AMBIENT": "true"}):
        await until(lambda: bool(child(server, "Deployment")))
        assert child(server, "Deployment")["metadata"]["labels"].get(MODE) == mode


async def test_gateway_edit_updates_the_deployment(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(gateway())
    async with plane(server, tmp_path):
        await until(lambda: bool(child(server, "Service")))
        server.put(gateway(listeners=f"{HTTP}, {{name: more, port: 81, protocol: HTTP}}"))
        await until(lambda: len(child(server, "Service")["spec"]["ports"]) == 3)
        server.put(gateway("infrastructure: {labels: {a: b}, annotations: {c: d}}", labels={"not": "this"}))
        await until(lambda: child(server, "Deployment")["metadata"]["labels"].get("a") == "b")
        assert child(server, "Deployment")["metadata"]["annotations"] == {"c": "d"}
        assert "not" not in child(server, "Deployment")["metadata"]["labels"]


async def test_external_changes_are_reverted_except_unowned_fields(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(gateway())
    async with plane(server, tmp_path) as process:
        await until(lambda: deployed_kinds(server) == {"Deployment", "Service", "ServiceAccount"})
        server.delete(child(server, "Service"))
        await until(lambda: bool(child(server, "Service")))
        deployment = child(server, "Deployment")
        template = deployment["spec"]["template"]
        container = {**template["spec"]["containers"][0], "image": "example.com/other"}
        spec = {
            **deployment["spec"],
            "replicas": 3,
            "template": {**template, "spec": {**template["spec"], "containers": [container]}},
        }
        server.put(
            {**deployment, "metadata": {**deployment["metadata"], "annotations": {"others": "own"}}, "spec": spec}
        )
        await until(
            lambda: (
                child(server, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"]
                == "example.com/h/proxyv2:1"
            )
        )
        assert child(server, "Deployment")["spec"]["replicas"] == 3, "replicas belong to the autoscaler"
        assert child(server, "Deployment")["metadata"]["annotations"]["others"] == "own"
        server.put({**child(server, "Deployment"), "status": {"replicas": 3}})
        before = sum(request.verb == "patch" for request in server.requests)
        server.put(gateway(annotations={"other": "thing", "gateway.istio.io/controller-version": "5"}))
        kinds = ("Deployment", "Service", "ServiceAccount")
        await until(
            lambda: all(child(server, kind)["metadata"]["annotations"].get("other") == "thing" for kind in kinds)
        )
        after = [request.resource.plural for request in server.requests if request.verb == "patch"][before:]
        assert set(after) - {"gateways"} == {"deployments", "serviceaccounts", "services"}, (
            "the Gateway's status is patched too"
        )
        assert process.plane.ready


async def test_deleted_gateway_is_not_redeployed(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(gateway())
    async with plane(server, tmp_path) as process:
        await until(lambda: deployed_kinds(server) == {"Deployment", "Service", "ServiceAccount"})
        server.delete(gateway())
        await until(lambda: len(KUBERNETES_GATEWAY.table(process.plane.db)) == 0)
        server.put(gateway(name="other"))  # Gateways are reconciled in order
        await until(lambda: bool(child(server, "Service", "other-istio")))
        for kind in ("Deployment", "Service", "ServiceAccount"):
            server.delete(child(server, kind))
        server.put(gateway(name="last"))
        await until(lambda: bool(child(server, "Service", "last-istio")))
        assert child(server, "Service") == child(server, "Deployment") == {}
        assert server.get(GATEWAY_API, "gateways", "a", "gw") is None


@pytest.mark.parametrize(
    ("spec", "is_deployed"),
    [
        ("", True),
        ("addresses: [{type: IPAddress, value: 1.2.3.4}]", True),
        ("addresses: [{type: Hostname, value: front}]", False),
        ("addresses: [{type: IPAddress, value: 1.2.3.4}, {type: IPAddress, value: 1.2.3.5}]", False),
    ],
)
async def test_manual_addresses_disable_the_deployment(
    server: ApiServer, tmp_path: pathlib.Path, spec: str, is_deployed: bool
) -> None:
    server.put(gateway(spec))
    server.put(gateway(name="last"))
    async with plane(server, tmp_path):
        await until(
            lambda: bool(child(server, "ServiceAccount", "last-istio")) and bool(child(server, "Service", "last-istio"))
        )
        assert bool(child(server, "Service")) is is_deployed
        if "1.2.3.4" in spec and is_deployed:
            assert child(server, "Service")["spec"]["loadBalancerIP"] == "1.2.3.4"


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"annotations": {"gateway.istio.io/controller-version": "6"}}, ""),
        ({"annotations": {"gateway.istio.io/controller-version": "next"}}, ""),
        ({"annotations": {"gateway.istio.io/controller-version": "1"}}, "gw-istio"),
        ({"annotations": {"gateway.istio.io/name-override": "edge"}}, "edge"),
        ({"labels": {"istio.io/rev": "green"}}, ""),
        ({"labels": {"istio.io/rev": "prod"}}, "gw-istio"),
    ],
)
async def test_deployment_ownership_and_name(
    server: ApiServer, tmp_path: pathlib.Path, metadata: dict[str, Any], name: str
) -> None:
    webhook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "webhooks": []}
    server.put(webhook | {"metadata": {"name": "t", "labels": {"istio.io/rev": "default", "istio.io/tag": "prod"}}})
    server.put(gateway(**metadata))
    server.put(gateway(name="last"))
    async with plane(server, tmp_path):
        await until(lambda: bool(child(server, "Service", "last-istio")))
        names = {key[1] for key in server.store.collection(KINDS["Service"]).objects if key[0] == "a"}
        assert names - {"last-istio"} == ({name} if name else set())


async def test_unmanaged_service_is_not_adopted(
    server: ApiServer, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.put(make("Service", "gw-istio", "{ports: [{port: 1}]}"))
    server.put(gateway())
    async with plane(server, tmp_path):
        await until(lambda: bool(child(server, "Deployment")) and bool(child(server, "ServiceAccount")))
        warning = "Gateway a/gw: Service gw-istio exists already and is not managed by a Gateway"
        await until(lambda: warning in caplog.messages)
        assert child(server, "Service")["spec"] == {"ports": [{"port": 1}]}
        assert {message for message in caplog.messages if "is not managed" in message} == {warning}


async def test_config_map_overlays(server: ApiServer, tmp_path: pathlib.Path) -> None:
    container = {"name": "istio-proxy", "resources": {"requests": {"cpu": "1"}}}
    class_defaults = {
        "deployment": {"spec": {"replicas": 2}},
        "horizontalPodAutoscaler": {"spec": {"minReplicas": 2, "maxReplicas": 5}},
    }
    ports = [{"port": 80, "nodePort": 30080}]
    gateway_overlay = {
        "deployment": {"spec": {"template": {"spec": {"containers": [container]}}}},
        "service": {"spec": {"ports": ports}},
    }
    server.put(config_map("class", class_defaults, "istio-system", **{"gateway.istio.io/defaults-for-class": "istio"}))
    server.put(config_map("own", {**gateway_overlay, "podDisruptionBudget": {"spec": {"minAvailable": 1}}}))
    server.put(gateway("infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: own}}"))
    async with plane(server, tmp_path):
        await until(lambda: deployed_kinds(server) == set(KINDS))
        deployment = child(server, "Deployment")["spec"]
        assert deployment["replicas"] == 2
        (proxy,) = deployment["template"]["spec"]["containers"]
        assert proxy["resources"]["requests"]["cpu"] == "1"
        assert proxy["image"] == "example.com/h/proxyv2:1"
        assert [port.get("nodePort") for port in child(server, "Service")["spec"]["ports"]] == [None, 30080]
        assert child(server, "HorizontalPodAutoscaler")["spec"]["maxReplicas"] == 5
        assert child(server, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
        server.put(config_map("own", gateway_overlay))
        await until(lambda: deployed_kinds(server) == set(KINDS) - {"PodDisruptionBudget"})


HOSTILE: dict[str, dict[str, Any]] = {
    "a label with YAML in it": {"labels": {"a": "x\n---\nkind: ClusterRole\n"}},
    "an annotation with YAML in it": {
        "annotations": {"a": 'x"}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: kube-system}\n'}
    },
    "an annotation with a template in it": {
        "annotations": {"a": "{{ .Values }}", "sidecar.istio.io/logLevel": '{{"a"}}", "--x'}
    },
    "a name that is YAML": {"annotations": {"gateway.istio.io/name-override": "x\n  namespace: kube-system"}},
    "an account that is YAML": {"annotations": {"gateway.istio.io/service-account": 'x"\n---\nkind: Role'}},
    "a type of Service that is YAML": {
        "annotations": {"networking.istio.io/service-type": 'ClusterIP"\n---\nkind: Pod'}
    },
    "an image type that is YAML": {
        "annotations": {"sidecar.istio.io/proxyImageType": 'x",securityContext: {privileged: true},"a": "'}
    },
}
OVERLAYS: dict[str, dict[str, Any]] = {
    "another namespace": {"deployment": {"metadata": {"namespace": "kube-system"}}},
    "another name": {"service": {"metadata": {"name": "istiod"}}},
    "another kind": {"deployment": {"kind": "DaemonSet"}},
    "another version": {"deployment": {"apiVersion": "example.com/v1"}},
    "another owner": {
        "serviceAccount": {
            "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}
        }
    },
    "all of it": {"deployment": {"$patch": "replace", "kind": "ClusterRole", "metadata": {"name": "x"}}},
    "a key that is not known": {"clusterRole": {"rules": []}},
    "no mapping": {"deployment": ["x"]},
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_hostile_gateway_fields_stay_data(server: ApiServer, tmp_path: pathlib.Path, case: str) -> None:
    server.put(gateway(**HOSTILE[case]))
    server.put(gateway(name="last"))
    async with plane(server, tmp_path):
        await until(
            lambda: bool(child(server, "Service", "last-istio")) and bool(child(server, "Deployment", "last-istio"))
        )
        created = applied_objects(server)
    assert {(kind, namespace) for kind, namespace, _ in created} <= {(kind, "a") for kind in KINDS}
    for deployment in (stored.plain for stored in server.store.collection(KINDS["Deployment"]).objects.values()):
        (proxy,) = deployment["spec"]["template"]["spec"]["containers"]
        assert proxy["securityContext"]["privileged"] is False
        assert proxy["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize("case", OVERLAYS)
async def test_overlays_create_no_other_objects(server: ApiServer, tmp_path: pathlib.Path, case: str) -> None:
    server.put(config_map("own", OVERLAYS[case]))
    server.put(gateway("infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: own}}"))
    server.put(gateway(name="last"))
    async with plane(server, tmp_path):
        await until(
            lambda: bool(child(server, "Service", "last-istio")) and bool(child(server, "Deployment", "last-istio"))
        )
        names = {"last-istio"}
        assert {name for _, _, name in applied_objects(server)} == names


async def test_too_large_overlay_is_reported_until_it_is_corrected(server: ApiServer, tmp_path: pathlib.Path) -> None:
    labels = {f"l{n}": "x" * 60 for n in range(20_000)}
    server.put(config_map("own", {"deployment": {"metadata": {"labels": labels}}}))
    server.put(gateway("infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: own}}"))
    async with plane(server, tmp_path) as control_plane:

        def codes() -> list[tuple[str, str, str]]:
            problems = (p for p in control_plane.plane.problems if p.object.kind.name == "Gateway")
            return [(p.code, p.object.name, p.path) for p in problems if p.code == "not-deployed"]

        await until(lambda: codes() == [("not-deployed", "gw", "spec.infrastructure.parametersRef")])
        server.put(config_map("own", {"deployment": {"metadata": {"labels": {"l": "x"}}}}))
        await until(lambda: bool(child(server, "Deployment")) and not codes())


def applied_objects(server: ApiServer) -> set[tuple[str, str, str]]:
    """Return kind, namespace and name of all objects created by server-side apply."""
    keys = set()
    for resource in server.resources:
        for (namespace, name), stored in server.store.collection(resource.id).objects.items():
            fields = stored.plain["metadata"].get("managedFields", ())
            if any(entry["operation"] == "Apply" for entry in fields):
                keys.add((resource.kind, namespace, name))
    return keys
