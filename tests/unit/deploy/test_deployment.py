"""The manifests at an API server, and the control plane with the rights in them."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import yaml

from deploy.generated import ROOT
from deploy.operator.inputs import user_settings
from deploy.operator.manifest import render_installation
from deploy.rbac import CLUSTER, GATEWAYS, OWN_NAMESPACE, watched_kinds
from pilot.bootstrap import ControlPlane
from pilot.config.catalogue import CATALOGUE, Catalogue
from pilot.config.group_kind import GATEWAY_API
from pilot.kube.api_client import ApiClient
from pilot.settings.parse import load
from testing.apiserver.definitions import definitions
from testing.apiserver.rbac import rbac_authorizer
from testing.apiserver.resource import ADMISSION
from testing.apiserver.server import ApiServer
from testing.apiserver.tokens import ADMIN
from testing.kube.kube_access import StaticAccess, kubeconfig, until

pytestmark = pytest.mark.slow

SYSTEM = "istio-system"
TOKEN = "token-of-istiod"
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OBJECTS = [
    plain for path in sorted((ROOT / "manifests").glob("*.yaml")) for plain in yaml.load_all(path.read_text(), LOADER)
]
ROUTE = """
apiVersion: gateway.networking.k8s.io/v1
kind: %s
metadata: {name: routed, namespace: shop}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 80}]}]}
"""
ROUTED = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: istio
  allowedListeners: {namespaces: {from: Same}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: routed, namespace: shop}
spec: {parentRef: {name: edge}, listeners: [{name: more, port: 81, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: routed, namespace: shop}
spec: {targetRefs: [{group: "", kind: Service, name: web}], validation: {wellKnownCACertificates: System, hostname: web}}
---
apiVersion: v1
kind: Service
metadata: {name: istio-ingressgateway, namespace: istio-system}
spec: {externalIPs: [8.8.8.8], ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: routed, namespace: shop, annotations: {kubernetes.io/ingress.class: istio}}
spec: {rules: [{host: x.com}]}
---
""" + "---".join(ROUTE % kind for kind in ("HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute"))
DEPLOYED = (
    ("apps", "deployments", "shop", "edge-istio"),
    ("", "services", "shop", "edge-istio"),
    ("", "serviceaccounts", "shop", "edge-istio"),
)
_PLURALS = ("httproutes", "grpcroutes", "tcproutes", "tlsroutes", "listenersets", "backendtlspolicies")
WITH_STATUS = (
    *((GATEWAY_API, plural, "shop", "routed") for plural in _PLURALS),
    (GATEWAY_API, "gateways", "shop", "edge"),
    (GATEWAY_API, "gatewayclasses", "", "istio"),
    ("networking.k8s.io", "ingresses", "shop", "routed"),
)
ENTRY = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec: {hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}
"""


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    await api_server.start()
    yield api_server
    await api_server.stop()


def has(actual: Any, expected: Any) -> bool:
    """Return whether an object has all applied fields. The server may have added defaults."""
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(
            key in actual and has(actual[key], value) for key, value in expected.items()
        )
    return bool(actual == expected)


def path_of(server: ApiServer, plain: dict[str, Any]) -> str:
    group, _, version = plain["apiVersion"].rpartition("/")
    resource = server.resources.of_object(plain)
    namespace = f"/namespaces/{plain['metadata'].get('namespace', 'default')}" if resource.namespaced else ""
    return f"{server.url}/{'apis/' + group if group else 'api'}/{version}{namespace}/{resource.plural}/{plain['metadata']['name']}"


async def test_objects_can_be_applied_read_and_deleted(server: ApiServer) -> None:
    """The requests of `kubectl apply --server-side`, with and without `--dry-run=server`, `get` and `delete`."""
    headers = {"Authorization": f"Bearer {ADMIN}"}
    patch = {"headers": {"Content-Type": "application/apply-patch+yaml"}}
    query = {"fieldManager": "kubectl", "fieldValidation": "Strict"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for plain in OBJECTS:
            url, body = path_of(server, plain), yaml.dump(plain)
            async with session.patch(url, data=body, params={**query, "dryRun": "All"}, **patch) as response:
                assert response.status in (200, 201), await response.text()
            async with session.get(url) as response:
                assert response.status == 404, url
            async with session.patch(url, data=body, params=query, **patch) as response:
                assert response.status in (200, 201), await response.text()
            async with session.get(url) as response:
                actual = await response.json()
                assert has(actual, {key: value for key, value in plain.items() if key != "metadata"})
        for plain in reversed(OBJECTS):
            async with session.delete(path_of(server, plain)) as response:
                assert response.status == 200, await response.text()


def used_rights(server: ApiServer) -> set[tuple[str, str, str]]:
    return {
        (a.resource.group, a.resource.plural + (f"/{a.subresource}" if a.subresource else ""), a.verb)
        for a in server.requests
    }


def discovery_container() -> dict[str, Any]:
    deployment = next(o for o in OBJECTS if (o["kind"], o["metadata"]["name"]) == ("Deployment", "istiod"))
    container: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return container


def discovery_arguments() -> list[str]:
    container = discovery_container()
    flags = [word for word in container["args"] if word != "discovery"]
    quiet = [
        f"--{name}=127.0.0.1:0" for name in ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")
    ]
    return [*(word for word in flags if not word.startswith("--monitoringAddr")), *quiet, "--ctrlz_port=0"]


def discovery_variables() -> dict[str, str]:
    container = discovery_container()
    overrides = {
        "POD_NAMESPACE": SYSTEM,
        "POD_NAME": "istiod-1",
        "SERVICE_ACCOUNT": "istiod",
        "PILOT_DEBOUNCE_AFTER": "1ms",
    }
    return {**{v["name"]: v["value"] for v in container["env"] if "value" in v}, **overrides}


async def test_roles_grant_exactly_the_used_rights(server: ApiServer, tmp_path: pathlib.Path) -> None:
    for plain in OBJECTS:
        server.put(plain)
    for name in (SYSTEM, "shop"):
        server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for plain in definitions(Catalogue(kind for kind in CATALOGUE if kind.id.group == GATEWAY_API)):
        server.put(plain)
    server.apply(ENTRY)
    server.apply(ROUTED)
    server.tokens.service_account(SYSTEM, "istiod", TOKEN)
    server.tokens.authorizer = rbac_authorizer(server.store)
    config = tmp_path / "kubeconfig"
    config.write_text(yaml.dump(kubeconfig(server, TOKEN)))
    loaded = load([*discovery_arguments(), f"--kubeconfig={config}"], discovery_variables())
    plane = ControlPlane(loaded.settings)
    running = asyncio.create_task(plane.run())
    try:
        await until(lambda: server.get("", "configmaps", "shop", "istio-ca-root-cert") is not None)
        await until(
            lambda: bool((server.get("networking.istio.io", "serviceentries", "shop", "outside") or {}).get("status"))
        )
        await until(
            lambda: (
                "caBundle" in str(server.get(ADMISSION, "mutatingwebhookconfigurations", "", "istio-sidecar-injector"))
            )
        )
        await until(lambda: server.get("", "secrets", SYSTEM, "istio-ca-secret") is not None)
        await until(lambda: all(server.get(*location) is not None for location in DEPLOYED))
        await until(lambda: all("status" in (server.get(*location) or {}) for location in WITH_STATUS))
    finally:
        plane.end()
        await running
    accesses = (*watched_kinds(), *CLUSTER, *GATEWAYS, *OWN_NAMESPACE)
    granted = {(r.group, r.resource, verb) for r in accesses for verb in r.verbs}
    assert used_rights(server) <= granted
    rows = [r for r in accesses if server.resources.find(r.group, r.resource.partition("/")[0])]
    watched = {(r.group, r.resource) for r in watched_kinds() if r in rows}
    unused = {
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("networking.istio.io", "workloadentries"),
        ("networking.istio.io", "workloadentries/status"),
        ("networking.istio.io", "workloadgroups"),
        ("coordination.k8s.io", "leases"),
        ("gateway.networking.x-k8s.io", "xbackendtrafficpolicies/status"),
        ("", "services/status"),
        ("security.istio.io", "authorizationpolicies/status"),
    }
    requested = {(group, resource) for group, resource, _ in used_rights(server)}
    assert {(r.group, r.resource) for r in rows} - requested <= unused
    assert watched <= requested


async def test_roles_are_enforced(server: ApiServer) -> None:
    for plain in OBJECTS:
        server.put(plain)
    server.tokens.service_account(SYSTEM, "istiod", TOKEN)
    server.tokens.service_account("shop", "default", "other-token")
    authorize = rbac_authorizer(server.store)
    listing = {"verb": "list", "group": "", "resource": "pods", "namespace": "", "name": "", "subresource": ""}
    istiod = f"system:serviceaccount:{SYSTEM}:istiod"
    assert authorize(istiod, (), listing)
    assert not authorize(istiod, (), {**listing, "verb": "delete"})
    assert not authorize("system:serviceaccount:shop:default", (), listing)
    secret = {**listing, "verb": "update", "resource": "secrets", "name": "istio-ca-secret"}
    assert authorize(istiod, (), {**secret, "namespace": SYSTEM})
    assert not authorize(istiod, (), {**secret, "namespace": SYSTEM, "name": "other"})
    assert not authorize(istiod, (), {**secret, "namespace": "shop"})
    config_map = {**listing, "verb": "patch", "resource": "configmaps", "namespace": "kube-system"}
    assert authorize(istiod, (), {**config_map, "name": "istio-ca-root-cert"})
    assert not authorize(istiod, (), {**config_map, "name": "coredns"})
    server.tokens.authorizer = authorize
    client = ApiClient(StaticAccess(server, "other-token"))
    with pytest.raises(Exception, match="forbidden"):
        await client.call("GET", "/api/v1/pods")
    await client.close()


def test_deployment_flags_are_supported() -> None:
    assert load(discovery_arguments(), discovery_variables()).warnings == []


async def test_profiles_can_be_applied(server: ApiServer) -> None:
    for profile in ("default", "demo", "ambient", "remote", "stable"):
        installation = render_installation(
            user_settings((), [f"profile={profile}", "revision=r1"]).plain, lambda _: None
        )
        for plain in installation.objects():
            server.put(plain)
