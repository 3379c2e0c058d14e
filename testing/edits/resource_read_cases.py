"""Read cases whose edits change proxies' resources, for reads that random edits rarely exercise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.config.object import ObjectKey
from pilot.ingest.decode import OWN
from pilot.mesh.tables.database import ALLOCATED_ADDRESSES, REMEMBERED
from testing.edits.ambient_objects import NAME
from testing.edits.cluster_objects import WEST
from testing.edits.gateway_objects import ALL, API, cluster_wide, gateway_object, tls
from testing.edits.mesh_edits import Rows
from testing.edits.read_case import VIEWS, ReadCase, mesh, object_rows, slot_rows
from testing.mesh.objects import at, endpoint_slice, make, pod

SIDECAR = "Proxy web-0.a Kubernetes"
ROUTER, ZTUNNEL = "Proxy ingress-0.edge Kubernetes", "Proxy zt-0.istio-system Kubernetes"
PORT = f"{{name: any, port: 80, protocol: HTTP, {ALL}}}"
TARGET = "targetRefs: [{group: '', kind: Service, name: api}], validation: {wellKnownCACertificates: System, hostname: x.com}"
FOR_ALL = "{name: mesh, port: 15008, protocol: HBONE, allowedRoutes: {namespaces: {from: All}}}"
WAYPOINT = slot_rows("Service a/wp", "Pod a/wp-0", "EndpointSlice a/wp-0", "GatewayClass /istio-waypoint")
ROUTERS = slot_rows(ROUTER, "Service edge/front", "Pod edge/ingress-0")
SERVED = slot_rows("Service b/api", "EndpointSlice b/api-0", "Pod b/api-0")
WEB = slot_rows("Service a/web", "EndpointSlice a/web-0", "Pod a/web-0")
GLOBAL = "{serviceScopeConfigs: [{scope: GLOBAL, servicesSelector: {matchLabels: {scope: global}}}]}"
FOR = "istio.io/waypoint-for"
SOCKET = "ports: [{number: 80, name: http, protocol: HTTP}]"
NAMED = "{matchLabels: {app: named}}"
WAYPOINT_USER = "istio.io/use-waypoint: wp"


def front(listeners: str = PORT, more: str = "", annotations: Mapping[str, str] | None = None) -> Rows:
    """Return a Gateway that is served by the routers behind the Service `front`."""
    spec = f"gatewayClassName: istio, listeners: [{listeners}]{more}"
    return object_rows(
        gateway_object(
            "Gateway", "front", spec, annotations={"gateway.istio.io/name-override": "front", **(annotations or {})}
        )
    )


def waypoint(**metadata: Any) -> Rows:
    """Return the Gateway of the waypoint `wp`."""
    return object_rows(
        gateway_object("Gateway", "wp", f"gatewayClassName: istio-waypoint, listeners: [{FOR_ALL}]", "a", **metadata)
    )


def waypoint_class(traffic: str) -> Rows:
    """Return the waypoints' GatewayClass with a default for `istio.io/waypoint-for`."""
    (plain,) = cluster_wide("GatewayClass", "istio-waypoint", API, "controllerName: istio.io/mesh-controller").variants
    return object_rows({**plain, "metadata": {**plain["metadata"], "labels": {FOR: traffic}}})


def waypoints() -> Rows:
    """Return two waypoints of another control plane, whose addresses are in their status."""
    addresses = {"wp": "10.96.0.48", "second": "10.96.0.49"}
    spec = f"gatewayClassName: foreign, listeners: [{FOR_ALL}]"
    gateways = (
        gateway_object("Gateway", name, spec, "a", status={"addresses": [{"value": ip}]})
        for name, ip in addresses.items()
    )
    return object_rows(
        *cluster_wide("GatewayClass", "foreign", API, "controllerName: example.com/other").variants, *gateways
    )


def web(cluster: str, labels: str) -> Rows:
    """Return a Service with a different address in each cluster."""
    ip = "10.96.0.1" if cluster == OWN.cluster else "10.97.0.1"
    spec = f"{{clusterIP: {ip}, clusterIPs: [{ip}], ports: [{{name: http, port: 80}}]}}"
    return object_rows(make("Service", "web", spec, labels=labels), cluster=cluster)


def waypoint_entry(ip: str) -> Rows:
    return object_rows(make("WorkloadEntry", "behind", f"{{address: {ip}}}", "a", labels=f"{{{WAYPOINT_USER}}}"))


def route(parent: str, backend: str = "{name: api, namespace: b, port: 80}") -> Rows:
    return object_rows(
        gateway_object("HTTPRoute", "route", f"parentRefs: [{{{parent}}}], rules: [{{backendRefs: [{backend}]}}]", "b")
    )


def service(
    name: str,
    namespace: str,
    labels: str = "{}",
    annotations: str = "{}",
    kind: str = "ClusterIP",
    selector: str = "{}",
) -> Rows:
    spec = f"{{type: {kind}, clusterIP: 10.96.0.51, clusterIPs: [10.96.0.51], selector: {selector}, ports: [{{name: http, port: 80}}]}}"
    return object_rows(make("Service", name, spec, namespace, labels=labels, annotations=annotations))


def entry(host: str, labels: str = "{}", annotations: str = "{}") -> Rows:
    ports = "ports: [{number: 80, name: http, protocol: HTTP}]"
    spec = (
        f"{{hosts: [{host}], addresses: [10.50.0.9], resolution: STATIC, {ports}, endpoints: [{{address: 10.60.0.9}}]}}"
    )
    return object_rows(make("ServiceEntry", "out", spec, "a", labels=labels, annotations=annotations))


def tls_policy(name: str, day: int) -> Rows:
    return object_rows(gateway_object("BackendTLSPolicy", name, TARGET, "b", day))


def destination_rule(namespace: str, more: str = "") -> Rows:
    policy = "trafficPolicy: {connectionPool: {tcp: {maxConnections: 4}}}"
    return object_rows(make("DestinationRule", "rule", f"{{host: web.a.svc.cluster.local, {policy}{more}}}", namespace))


def mutual_tls(name: str, mode: str, day: int = 1, more: str = "") -> Rows:
    return object_rows(make("PeerAuthentication", name, f"{{mtls: {{mode: {mode}}}{more}}}", day=day))


def user(labels: str = "{}") -> Rows:
    return object_rows(pod("user", "10.1.0.60", labels=labels))


def entry_endpoint(name: str, labels: str) -> Rows:
    """Return a ServiceEntry with an endpoint that has labels."""
    endpoint = f"{{address: 10.60.0.9, labels: {labels}}}"
    return object_rows(
        make(
            "ServiceEntry",
            name,
            f"{{hosts: [{name}.example.com], resolution: STATIC, {SOCKET}, endpoints: [{endpoint}]}}",
        )
    )


def selecting_entry(app: str) -> Rows:
    selector = f"workloadSelector: {{labels: {{app: {app}}}}}"
    return object_rows(
        make(
            "ServiceEntry",
            "chosen",
            f"{{hosts: [chosen.example.com], addresses: [10.50.0.8], resolution: STATIC, {SOCKET}, {selector}}}",
        )
    )


def unmatched_slice(*addresses: str) -> Rows:
    """Return an EndpointSlice with none of the ports of its Service."""
    return object_rows(endpoint_slice("web", *addresses, ports="[{name: other, port: 9}]", name="web-9"))


FRONT_AT = object_rows(endpoint_slice("front", at("10.1.0.9", "ingress-0", namespace="edge"), namespace="edge"))
PICKING = {**ROUTERS, **object_rows(pod("ingress-0", "10.1.0.9", "edge", labels=f"{{istio: ingress, {NAME}: front}}"))}
WAYPOINT_FOR_ALL = mesh(WAYPOINT, waypoint(labels={FOR: "all"}), slot_rows("Proxy wp-0.a Kubernetes"))
CANARY = f"{{{WAYPOINT_USER}, istio.io/use-waypoint-canary: second}}"
WEIGHTS = [f"{{istio.io/use-waypoint-canary-weight: '{weight}'}}" for weight in (10, 90)]
REMEMBERED_ADDRESS = {
    (ALLOCATED_ADDRESSES, REMEMBERED): {ObjectKey("c", "ext"): {"x.example.com": ("240.240.9.9", "2001:2::9:9")}}
}
CASES = (
    ReadCase(
        f"{VIEWS}/registry/auto_addresses.py allocated_addresses AllocatedAddresses.get",
        mesh(slot_rows("ServiceEntry c/ext", SIDECAR)),
        [REMEMBERED_ADDRESS],
    ),
    ReadCase(
        f"{VIEWS}/lowering/gateway_api/backend_policies.py _older BackendTLSPolicy.keys",
        mesh(SERVED, tls_policy("younger", 2)),
        [tls_policy("older", 1)],
    ),
    ReadCase(
        f"{VIEWS}/traffic/destination_rules.py _rules_of_clients DestinationRule.keys",
        mesh(WEB, slot_rows("Proxy api-0.b Kubernetes")),
        [destination_rule("b"), dict.fromkeys(destination_rule("b")), destination_rule("a", ", exportTo: [b]")],
    ),
    ReadCase(
        f"{VIEWS}/security/credential_access.py _referred Gateway.get",
        mesh(
            ROUTERS,
            slot_rows("Secret edge/c", "SecretAccess Kubernetes/edge/default"),
            front(tls("safe", "{name: c}"), annotations={"gateway.istio.io/service-account": "default"}),
        ),
        [front(tls("safe", "{name: c}"), annotations={"gateway.istio.io/service-account": "other"})],
    ),
    ReadCase(
        f"{VIEWS}/ambient/waypoints.py waypoint GatewayClass.get",
        mesh(WAYPOINT, waypoint(), slot_rows(ZTUNNEL, "Service a/cart")),
        [waypoint_class(traffic) for traffic in ("none", "all")],
    ),
    ReadCase(
        f"{VIEWS}/lowering/gateway_api/shadow_services.py pool_keys InferencePool.all_keys",
        mesh(PICKING, front(), SERVED, slot_rows("HTTPRoute b/chat", "Service b/llm-ip-487b9104")),
        [slot_rows("InferencePool b/llm")],
    ),
    ReadCase(
        f"{VIEWS}/gateway_api/gateways.py attached_listener_sets Gateway.get",
        mesh(ROUTERS, front(), slot_rows("ListenerSet edge/less")),
        [front(more=", allowedListeners: {namespaces: {from: All}}")],
    ),
    ReadCase(
        f"{VIEWS}/gateway_api/gateways.py listener_conflicts Gateway.get",
        mesh(ROUTERS, front()),
        [front(f"{PORT}, {PORT.replace('any', 'again')}")],
    ),
    ReadCase(
        f"{VIEWS}/ambient/attachments.py declaring_object Service.get",
        mesh(waypoints(), service("cart", "a", CANARY, WEIGHTS[0]), slot_rows(ZTUNNEL)),
        [service("cart", "a", CANARY, WEIGHTS[1])],
    ),
    ReadCase(
        f"{VIEWS}/ambient/attachments.py declaring_object ServiceEntry.get",
        mesh(waypoints(), entry("out.example.com", CANARY, WEIGHTS[0]), slot_rows(ZTUNNEL)),
        [entry("out.example.com", CANARY, WEIGHTS[1])],
    ),
    ReadCase(
        f"{VIEWS}/ambient/attachments.py _reachable_pods Pod.all_keys",
        WAYPOINT_FOR_ALL,
        [object_rows(pod("user", "10.1.0.60", labels=f"{{{WAYPOINT_USER}}}"))],
    ),
    ReadCase(
        f"{VIEWS}/ambient/services.py is_global Service.get",
        mesh(slot_rows(ZTUNNEL), web(OWN.cluster, "{scope: global}"), web(WEST, "{}"), config=GLOBAL),
        [web(WEST, "{scope: global}")],
    ),
    ReadCase(
        f"{VIEWS}/registry/gateway_addresses.py _awaits_external_address Service.get",
        mesh(ROUTERS, front(), FRONT_AT, service("front", "edge", kind="LoadBalancer", selector="{istio: ingress}")),
        [service("front", "edge", selector="{istio: ingress}")],
    ),
    ReadCase(
        f"{VIEWS}/lowering/gateway_api/backends.py _service Service.get",
        mesh(ROUTERS, front(), route("name: front, namespace: edge", "{name: api, port: 80}")),
        [slot_rows("Service b/api")],
    ),
    ReadCase(
        f"{VIEWS}/lowering/gateway_api/parents.py mesh_hosts ServiceEntry.get",
        mesh(
            slot_rows(SIDECAR),
            entry("out.example.com"),
            route("name: out, namespace: a, kind: ServiceEntry, group: networking.istio.io"),
        ),
        [entry("other.example.com")],
    ),
    ReadCase(
        f"{VIEWS}/registry/services.py refs_in_namespace ServiceImport.keys",
        mesh(WEB, object_rows(make("Sidecar", "default", "{egress: [{hosts: [a/*.clusterset.local]}]}", "b"))),
        [slot_rows("ServiceImport a/web")],
    ),
    ReadCase(
        f"{VIEWS}/ambient/waypoint_addresses.py _of_entry WorkloadEntry.get",
        {**WAYPOINT_FOR_ALL, **waypoint_entry("10.1.0.61")},
        [waypoint_entry("10.1.0.62")],
    ),
    *(
        ReadCase(
            f"{VIEWS}/lowering/gateway_api/attachments.py _absent {read}",
            mesh(slot_rows("Proxy api-0.b Kubernetes"), route(f"name: out, namespace: a, {target}")),
            [parent],
        )
        for read, target, parent in (
            ("Service.get", "kind: Service, group: ''", service("out", "a")),
            ("ServiceEntry.get", "kind: ServiceEntry, group: networking.istio.io", entry("out.example.com")),
        )
    ),
    *(
        ReadCase(
            f"{VIEWS}/registry/{read}",
            mesh(
                object_rows(
                    make(
                        "Sidecar",
                        "default",
                        "{egress: [{hosts: ['a/*.example.com', 'a/*.a.svc.cluster.local']}]}",
                        "b",
                    )
                ),
                before,
            ),
            [edit],
        )
        for read, before, edit in (
            ("excess_services.py used_keys_in Service.keys", {}, service("late", "a")),
            ("services.py _entries_in_namespace ServiceEntry.keys", {}, entry("out.example.com")),
            (
                "services.py _entries_in_namespace ServiceEntry.get",
                entry("out.example.net"),
                entry("out.example.net, out.example.com"),
            ),
        )
    ),
    ReadCase(
        f"{VIEWS}/ambient/attachments.py _waypoint_of_pod Pod.get",
        {**WAYPOINT_FOR_ALL, **user()},
        [user(f"{{{WAYPOINT_USER}}}")],
    ),
    ReadCase(
        f"{VIEWS}/ambient/waypoint_addresses.py _own_entries WorkloadEntry.all_keys",
        WAYPOINT_FOR_ALL,
        [waypoint_entry("10.1.0.61")],
    ),
    ReadCase(
        f"{VIEWS}/ambient/waypoint_addresses.py _service_entries ServiceEntry.all_keys",
        WAYPOINT_FOR_ALL,
        [entry_endpoint("out", f"{{{WAYPOINT_USER}}}")],
    ),
    ReadCase(
        f"{VIEWS}/ambient/waypoint_addresses.py _of_service_entry ServiceEntry.get",
        {**WAYPOINT_FOR_ALL, **entry_endpoint("out", "{}")},
        [entry_endpoint("out", f"{{{WAYPOINT_USER}}}")],
    ),
    ReadCase(
        f"{VIEWS}/ambient/policies.py _mtls_policies PeerAuthentication.get",
        mesh(slot_rows(ZTUNNEL), user("{app: named}"), mutual_tls("own", "PERMISSIVE", more=f", selector: {NAMED}")),
        [mutual_tls("own", "STRICT", more=f", selector: {NAMED}")],
    ),
    ReadCase(
        f"{VIEWS}/ambient/served_services.py selecting_entries ServiceEntry.get",
        mesh(slot_rows(ZTUNNEL), user("{app: named}"), selecting_entry("other")),
        [selecting_entry("named")],
    ),
    ReadCase(
        f"{VIEWS}/proxies/selected_labels.py _destination_rule_keys DestinationRule.keys",
        mesh(WEB, slot_rows(SIDECAR)),
        [destination_rule("a", ", workloadSelector: {matchLabels: {app: web}}")],
    ),
    *(
        ReadCase(
            f"{VIEWS}/registry/endpoint_slices.py unmatched_accounts EndpointSlice.{read}",
            mesh(WEB, user(), slot_rows(SIDECAR), before),
            [unmatched_slice(at("10.1.0.60", "user"))],
        )
        for read, before in (("keys", {}), ("get", unmatched_slice()))
    ),
    ReadCase(
        f"{VIEWS}/registry/services.py _kubernetes_refs ServiceImport.all_keys",
        mesh(WEB, slot_rows(SIDECAR)),
        [slot_rows("ServiceImport a/web")],
    ),
)
