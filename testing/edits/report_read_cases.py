"""Edits that need one read to be told of what users are told: problems of objects with each other, and statuses."""

from __future__ import annotations

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef
from pilot.mesh.model.nack import Nack, NackKey
from testing.edits.gateway_objects import API, cluster_wide, gateway_object
from testing.edits.mesh_edits import Rows
from testing.edits.read_case import VIEWS, ReadCase, held, mesh, of
from testing.edits.resource_read_cases import (
    NAMED,
    ROUTER,
    ROUTERS,
    SERVED,
    SOCKET,
    TARGET,
    WAYPOINT_FOR_ALL,
    behind,
    front,
    mutual_tls,
)
from testing.mesh.objects import make, pod

CHECKS = "pilot/mesh/analysis"
STATUS = f"{VIEWS}/status"
SERVERS = (
    "{selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [x.example.com]}]}"
)
SAFE = (
    "{selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, "
    "tls: {mode: SIMPLE, credentialName: c}, hosts: [x.example.com]}]}"
)


def refused(proxy: str, *names: str) -> Rows:
    """Return the row of what a proxy refuses, which follows from these VirtualServices."""
    objects = tuple(ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", name) for name in names)
    return {("Refusal", NackKey(proxy, "type.googleapis.com/x")): Nack(proxy, "x", "no such field", objects)}


def exported(to: str) -> Rows:
    """Return a Service that is for another namespace."""
    return of(
        make(
            "Service",
            "shown",
            "{clusterIP: None, ports: [{name: http, port: 80}]}",
            annotations=f"{{networking.istio.io/exportTo: {to}}}",
        )
    )


def registered(name: str) -> Rows:
    """Return a WorkloadEntry that was registered for a WorkloadGroup."""
    return of(make("WorkloadEntry", name, "{address: 10.1.0.70}", annotations="{istio.io/autoRegistrationGroup: gone}"))


def pool(port: str) -> Rows:
    spec = f"selector: {{matchLabels: {{app: llm}}}}, targetPorts: [{{number: 8000}}], endpointPickerRef: {{name: api{port}}}"
    return of(gateway_object("InferencePool", "llm", spec, "b", api="inference.networking.k8s.io/v1"))


def entrance(ip: str) -> Rows:
    """Return the Service that the mesh config names, with an address from outside."""
    status = {"loadBalancer": {"ingress": [{"ip": ip}]}}
    return of(
        make("Service", "entrance", "{type: LoadBalancer, ports: [{name: http, port: 80}]}", "edge", status=status)
    )


def default_class(controller: str) -> Rows:
    """Return a GatewayClass of the name that is there without any object."""
    return of(*cluster_wide("GatewayClass", "istio", API, f"controllerName: {controller}").variants)


def traffic_policy(more: str = "") -> Rows:
    spec = f"targetRefs: [{{group: '', kind: Service, name: api}}]{more}"
    return of(gateway_object("XBackendTrafficPolicy", "budget", spec, "b", api="gateway.networking.x-k8s.io/v1alpha1"))


def ignored_tls_policy(target: str) -> Rows:
    spec = TARGET.replace("name: api", f"name: {target}")
    return of(
        gateway_object(
            "BackendTLSPolicy", "ignored", spec, "b", annotations={"istio.io/ignore-policy-attachment": "true"}
        )
    )


def route(kind: str, *parents: str) -> Rows:
    return of(
        gateway_object(
            kind,
            "route",
            f"parentRefs: [{', '.join(parents)}], rules: [{{backendRefs: [{{name: api, port: 80}}]}}]",
            "b",
        )
    )


MISTAKEN, ABSENT = "{name: front, namespace: edge, sectionName: absent}", "{name: absent, namespace: edge}"
LATE: dict[str, Rows] = {
    "Service.buckets": of(make("Service", "s", "{clusterIP: None, ports: [{name: http, port: 80}]}", "late")),
    "Pod.buckets": of(pod("p", "10.1.0.80", "late")),
    "WorkloadEntry.buckets": of(make("WorkloadEntry", "w", "{address: 10.1.0.81}", "late")),
    "ServiceEntry.buckets": of(
        make("ServiceEntry", "e", f"{{hosts: [late.example.com], resolution: DNS, {SOCKET}}}", "late")
    ),
    "VirtualService.buckets": of(
        make("VirtualService", "v", "{hosts: [late.example.com], http: [{redirect: {uri: /}}]}", "late")
    ),
    "DestinationRule.buckets": of(make("DestinationRule", "d", "{host: late.example.com}", "late")),
    "Gateway.buckets": of(make("Gateway", "g", SERVERS, "late")),
    "Sidecar.buckets": of(make("Sidecar", "default", "{egress: [{hosts: ['./*']}]}", "late")),
}
"""The first object of a namespace, by the read that finds it."""
TOLD_CASES = (
    *(
        ReadCase(
            f"{VIEWS}/scope/known_namespaces.py known_namespaces.<locals>.<genexpr> {read}",
            mesh(exported("late")),
            [first],
        )
        for read, first in LATE.items()
    ),
    ReadCase(
        f"{VIEWS}/scope/known_namespaces.py known_namespaces Namespace.all_keys",
        mesh(exported("late")),
        [of(make("Namespace", "late"))],
    ),
    ReadCase(f"{VIEWS}/tables/proxies.py proxy_namespaces Proxy.buckets", mesh(exported("edge")), [held(ROUTER)]),
    ReadCase(
        f"{VIEWS}/tables/nacks.py nacked_objects Refusal.buckets",
        mesh(refused("one", "first")),
        [refused("two", "second")],
    ),
    ReadCase(
        f"{VIEWS}/tables/nacks.py nacks_of Refusal.keys", mesh(refused("one", "first")), [refused("two", "first")]
    ),
    *(
        ReadCase(
            f"{VIEWS}/{read}",
            mesh(of(make("RequestAuthentication", "named", f"{{selector: {NAMED}}}", "istio-system"))),
            [first],
        )
        for read, first in (
            ("registry/pods.py pod_namespaces Pod.all_keys", of(pod("p", "10.1.0.80", "late", labels="{app: named}"))),
            (
                "registry/workload_entries.py entry_namespaces WorkloadEntry.all_keys",
                of(make("WorkloadEntry", "w", "{address: 10.1.0.81, labels: {app: named}}", "late")),
            ),
        )
    ),
    ReadCase(
        f"{CHECKS}/credential.py _secrets Secret.keys",
        mesh(ROUTERS, of(make("Gateway", "safe", SAFE, "edge"))),
        [held("Secret edge/c west")],
    ),
    ReadCase(
        f"{CHECKS}/policy.py _check_peer PeerAuthentication.keys",
        mesh(mutual_tls("younger", "STRICT", 2)),
        [mutual_tls("older", "STRICT")],
    ),
    ReadCase(f"{CHECKS}/service.py service_problems Service.get", mesh(exported("nowhere")), [exported("elsewhere")]),
    ReadCase(f"{CHECKS}/workload_entry.py _keys WorkloadEntry.keys", mesh(registered("first")), [registered("second")]),
    ReadCase(
        f"{VIEWS}/ambient/conditions.py workload_entry_conditions WorkloadEntry.get",
        {**WAYPOINT_FOR_ALL, **of(make("WorkloadEntry", "behind", "{address: 10.1.0.61}"))},
        [behind("10.1.0.61")],
    ),
    ReadCase(
        f"{VIEWS}/gateway_api/gateway_classes.py is_foreign_class GatewayClass.get",
        mesh(default_class("example.com/other")),
        [default_class("istio.io/gateway-controller")],
    ),
    *(
        ReadCase(
            f"{STATUS}/object_status.py object_with_status {kind}.get",
            mesh(ROUTERS, front(), SERVED, route(kind, MISTAKEN)),
            [route(kind, ABSENT, MISTAKEN)],
        )
        for kind in ("HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute")
    ),
    ReadCase(
        f"{STATUS}/policy_status.py backend_tls_status BackendTLSPolicy.get",
        mesh(SERVED, ignored_tls_policy("api")),
        [ignored_tls_policy("other")],
    ),
    ReadCase(
        f"{STATUS}/policy_status.py traffic_policy_status XBackendTrafficPolicy.get",
        mesh(SERVED, traffic_policy()),
        [traffic_policy(", sessionPersistence: {sessionName: x}")],
    ),
    ReadCase(
        f"{STATUS}/pool_status.py pool_status InferencePool.get",
        mesh(ROUTERS, front(), SERVED, held("HTTPRoute b/chat"), pool(", port: {number: 80}")),
        [pool("")],
    ),
    ReadCase(
        f"{VIEWS}/status/ingress_status.py _addresses Service.get",
        mesh(
            held("Ingress a/in", "IngressClass /ours"),
            entrance("198.51.100.1"),
            config="{ingressService: entrance, ingressSelector: ingress}",
        ),
        [entrance("198.51.100.2")],
    ),
)
