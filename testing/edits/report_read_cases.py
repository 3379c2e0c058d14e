"""Read cases whose edits change reports to users: problems of objects, and statuses."""

from __future__ import annotations

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef
from pilot.mesh.model.nack import Nack, NackKey
from testing.edits.gateway_objects import API, cluster_wide, gateway_object
from testing.edits.mesh_edits import Rows
from testing.edits.read_case import VIEWS, ReadCase, mesh, object_rows, slot_rows
from testing.edits.resource_read_cases import (
    NAMED,
    ROUTER,
    ROUTERS,
    SERVED,
    SOCKET,
    TARGET,
    WAYPOINT_FOR_ALL,
    front,
    mutual_tls,
    waypoint_entry,
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


def nack_row(proxy: str, *names: str) -> Rows:
    """Return the row of a proxy's NACK that is caused by these VirtualServices."""
    objects = tuple(ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", name) for name in names)
    return {("Refusal", NackKey(proxy, "type.googleapis.com/x")): Nack(proxy, "x", "no such field", objects)}


def exported_service(to: str) -> Rows:
    """Return a Service that is exported to another namespace."""
    return object_rows(
        make(
            "Service",
            "shown",
            "{clusterIP: None, ports: [{name: http, port: 80}]}",
            annotations=f"{{networking.istio.io/exportTo: {to}}}",
        )
    )


def registered_entry(name: str) -> Rows:
    """Return a WorkloadEntry that was registered for a WorkloadGroup."""
    return object_rows(
        make("WorkloadEntry", name, "{address: 10.1.0.70}", annotations="{istio.io/autoRegistrationGroup: gone}")
    )


def pool(port: str) -> Rows:
    spec = f"selector: {{matchLabels: {{app: llm}}}}, targetPorts: [{{number: 8000}}], endpointPickerRef: {{name: api{port}}}"
    return object_rows(gateway_object("InferencePool", "llm", spec, "b", api="inference.networking.k8s.io/v1"))


def ingress_service(ip: str) -> Rows:
    """Return the ingress Service of the mesh config, with an external address."""
    status = {"loadBalancer": {"ingress": [{"ip": ip}]}}
    return object_rows(
        make("Service", "entrance", "{type: LoadBalancer, ports: [{name: http, port: 80}]}", "edge", status=status)
    )


def default_class(controller: str) -> Rows:
    """Return a GatewayClass with the name of a built-in one."""
    return object_rows(*cluster_wide("GatewayClass", "istio", API, f"controllerName: {controller}").variants)


def traffic_policy(more: str = "") -> Rows:
    spec = f"targetRefs: [{{group: '', kind: Service, name: api}}]{more}"
    return object_rows(
        gateway_object("XBackendTrafficPolicy", "budget", spec, "b", api="gateway.networking.x-k8s.io/v1alpha1")
    )


def ignored_tls_policy(target: str) -> Rows:
    spec = TARGET.replace("name: api", f"name: {target}")
    return object_rows(
        gateway_object(
            "BackendTLSPolicy", "ignored", spec, "b", annotations={"istio.io/ignore-policy-attachment": "true"}
        )
    )


def route(kind: str, *parents: str) -> Rows:
    return object_rows(
        gateway_object(
            kind,
            "route",
            f"parentRefs: [{', '.join(parents)}], rules: [{{backendRefs: [{{name: api, port: 80}}]}}]",
            "b",
        )
    )


MISTAKEN, ABSENT = "{name: front, namespace: edge, sectionName: absent}", "{name: absent, namespace: edge}"
LATE: dict[str, Rows] = {
    "Service.buckets": object_rows(make("Service", "s", "{clusterIP: None, ports: [{name: http, port: 80}]}", "late")),
    "Pod.buckets": object_rows(pod("p", "10.1.0.80", "late")),
    "WorkloadEntry.buckets": object_rows(make("WorkloadEntry", "w", "{address: 10.1.0.81}", "late")),
    "ServiceEntry.buckets": object_rows(
        make("ServiceEntry", "e", f"{{hosts: [late.example.com], resolution: DNS, {SOCKET}}}", "late")
    ),
    "VirtualService.buckets": object_rows(
        make("VirtualService", "v", "{hosts: [late.example.com], http: [{redirect: {uri: /}}]}", "late")
    ),
    "DestinationRule.buckets": object_rows(make("DestinationRule", "d", "{host: late.example.com}", "late")),
    "Gateway.buckets": object_rows(make("Gateway", "g", SERVERS, "late")),
    "Sidecar.buckets": object_rows(make("Sidecar", "default", "{egress: [{hosts: ['./*']}]}", "late")),
}
"""The first object in a namespace, by the read that finds it."""
REPORT_CASES = (
    *(
        ReadCase(
            f"{VIEWS}/scope/known_namespaces.py known_namespaces.<locals>.<genexpr> {read}",
            mesh(exported_service("late")),
            [first],
        )
        for read, first in LATE.items()
    ),
    ReadCase(
        f"{VIEWS}/scope/known_namespaces.py known_namespaces Namespace.all_keys",
        mesh(exported_service("late")),
        [object_rows(make("Namespace", "late"))],
    ),
    ReadCase(
        f"{VIEWS}/tables/proxies.py proxy_namespaces Proxy.buckets", mesh(exported_service("edge")), [slot_rows(ROUTER)]
    ),
    ReadCase(
        f"{VIEWS}/tables/nacks.py rejections Refusal.buckets",
        mesh(nack_row("one", "first")),
        [nack_row("two", "second")],
    ),
    ReadCase(
        f"{VIEWS}/tables/nacks.py nacks_in Refusal.keys", mesh(nack_row("one", "first")), [nack_row("two", "first")]
    ),
    *(
        ReadCase(
            f"{VIEWS}/{read}",
            mesh(
                object_rows(
                    pod("other", "10.1.0.79", "b"),
                    make("RequestAuthentication", "named", f"{{selector: {NAMED}}}", "istio-system"),
                )
            ),
            [first],
        )
        for read, first in (
            (
                "registry/pods.py pod_namespaces Pod.all_keys",
                object_rows(pod("p", "10.1.0.80", "late", labels="{app: named}")),
            ),
            (
                "registry/workload_entries.py entry_namespaces WorkloadEntry.all_keys",
                object_rows(make("WorkloadEntry", "w", "{address: 10.1.0.81, labels: {app: named}}", "late")),
            ),
        )
    ),
    ReadCase(
        f"{CHECKS}/credential.py _secrets Secret.keys",
        mesh(ROUTERS, object_rows(make("Gateway", "safe", SAFE, "edge")), slot_rows("Secret edge/c", variant=3)),
        [slot_rows("Secret edge/c west")],  # the key of the other one does not match
    ),
    ReadCase(
        f"{CHECKS}/policy.py _overlaps PeerAuthentication.keys",
        mesh(mutual_tls("younger", "STRICT", 2)),
        [mutual_tls("older", "STRICT")],
    ),
    ReadCase(
        f"{CHECKS}/service.py service_problems Service.get",
        mesh(exported_service("nowhere")),
        [exported_service("elsewhere")],
    ),
    ReadCase(
        f"{CHECKS}/workload_entry.py _keys WorkloadEntry.keys",
        mesh(registered_entry("first")),
        [registered_entry("second")],
    ),
    ReadCase(
        f"{VIEWS}/ambient/conditions.py workload_entry_conditions WorkloadEntry.get",
        {**WAYPOINT_FOR_ALL, **object_rows(make("WorkloadEntry", "behind", "{address: 10.1.0.61}"))},
        [waypoint_entry("10.1.0.61")],
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
        mesh(ROUTERS, front(), SERVED, slot_rows("HTTPRoute b/chat"), pool(", port: {number: 80}")),
        [pool("")],
    ),
    ReadCase(
        f"{VIEWS}/status/ingress_status.py _addresses Service.get",
        mesh(
            slot_rows("Ingress a/in", "IngressClass /ours"),
            ingress_service("198.51.100.1"),
            config="{ingressService: entrance, ingressSelector: ingress}",
        ),
        [ingress_service("198.51.100.2")],
    ),
)
