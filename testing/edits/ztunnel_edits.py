"""Slots of an ambient mesh for random edits. Each contains one of several objects, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import rows_of

GATEWAY_API = "gateway.networking.k8s.io/v1"
CAPTURED = {"ambient.istio.io/redirection": "enabled"}


def _pod(name: str, ip: str, namespace: str, spec: str, labels: str, captured: bool = False, **more: Any) -> Plain:
    plain = pod(name, ip, namespace, spec, labels, **more)
    plain["metadata"]["annotations"] = CAPTURED if captured else {}
    return plain


def _pods(number: int, namespace: str) -> tuple[Plain, ...]:
    name, ip, other = f"p{number}", f"10.1.{'ab'.index(namespace)}.{number}", f"10.1.9.{number}"
    named_port = "{nodeName: n1, serviceAccountName: sa, containers: [{name: c, image: c, ports: [{name: web, containerPort: 9090}]}]}"
    return (
        _pod(name, ip, namespace, "{nodeName: n1}", "{app: web}", captured=True),
        _pod(name, ip, namespace, "{nodeName: n1}", "{app: web}", ready=False),
        _pod(name, ip, namespace, named_port, "{app: web, version: v2}", captured=True),
        _pod(name, ip, namespace, "{nodeName: n2}", "{app: db, istio.io/use-waypoint: w}"),
        _pod(name, other, namespace, "{nodeName: n2}", "{app: web}"),
        _pod(name, ip, namespace, "{nodeName: n2}", "{gateway.networking.k8s.io/gateway-name: w}"),
        _pod(name, ip, namespace, "{}", "{}", phase="Succeeded"),
    )


def _services(name: str, namespace: str, ip: str) -> tuple[Plain, ...]:
    port = "ports: [{name: http, port: 80, targetPort: %s}]"
    return (
        make("Service", name, f"{{clusterIP: {ip}, selector: {{app: web}}, {port % 8080}}}", namespace),
        make(
            "Service",
            name,
            f"{{clusterIP: {ip}, selector: {{app: web}}, {port % 'web'}}}",
            namespace,
            labels="{istio.io/use-waypoint: w}",
        ),
        make("Service", name, f"{{clusterIP: {ip}, selector: {{app: db}}, {port % 8080}}}", namespace),
        make("Service", name, f"{{clusterIP: {ip}, {port % 8080}}}", namespace),
        make(
            "Service",
            name,
            f"{{clusterIP: 10.96.9.9, selector: {{app: web}}, {port % 8080}, trafficDistribution: PreferClose}}",
            namespace,
        ),
        make("Service", name, "{type: ExternalName, externalName: x.example}", namespace),
    )


def _entries(name: str, namespace: str, day: int) -> tuple[Plain, ...]:
    spec = "{hosts: [%s], addresses: [10.97.0.1], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, %s}"
    return (
        make(
            "ServiceEntry",
            name,
            spec % ("x.example", "endpoints: [{address: 10.2.0.1}, {address: 10.2.0.2, weight: 2}]"),
            namespace,
            day=day,
        ),
        make(
            "ServiceEntry",
            name,
            spec % ("x.example, y.example", "workloadSelector: {labels: {app: web}}"),
            namespace,
            day=day,
        ),
        make(
            "ServiceEntry",
            name,
            "{hosts: [x.example], ports: [{number: 80, name: h, protocol: HTTP}], resolution: DNS}",
            namespace,
            day=day,
        ),
        make(
            "ServiceEntry",
            name,
            spec % ("y.example", "endpoints: [{address: 10.1.0.1}]"),
            namespace,
            day=day,
            labels="{app: web}",
        ),
    )


def _gateways(name: str, namespace: str) -> tuple[Plain, ...]:
    def gateway(address: str, labels: str = "{}", **more: Any) -> Plain:
        status = {"addresses": [{"type": "Hostname", "value": address}]} if address else {}
        spec = "{gatewayClassName: other, listeners: []}"
        return make("Gateway", name, spec, namespace, apiVersion=GATEWAY_API, labels=labels, status=status, **more)

    bound = "{ambient.istio.io/waypoint-inbound-binding: PROXY/15088}"
    return (
        gateway("w.svc"),
        gateway(""),
        gateway("w2.svc", "{istio.io/waypoint-for: all}"),
        gateway("w.svc", "{istio.io/waypoint-for: workload}", annotations=bound),
    )


def _policies(name: str, namespace: str) -> tuple[Plain, ...]:
    return (
        make("AuthorizationPolicy", name, "{action: DENY, rules: [{from: [{source: {namespaces: [x]}}]}]}", namespace),
        make(
            "AuthorizationPolicy",
            name,
            "{rules: [{to: [{operation: {ports: ['80']}}]}], selector: {matchLabels: {app: web}}}",
            namespace,
        ),
        make(
            "AuthorizationPolicy",
            name,
            "{rules: [{to: [{operation: {methods: [GET]}}]}], selector: {matchLabels: {version: v2}}}",
            namespace,
        ),
        make(
            "AuthorizationPolicy",
            name,
            "{action: DENY, rules: [{}], targetRefs: [{kind: Service, name: web}]}",
            namespace,
        ),
        make(
            "AuthorizationPolicy",
            name,
            "{action: DENY, rules: [{}]}",
            namespace,
            annotations="{istio.io/dry-run: 'true'}",
        ),
    )


def _peers(name: str, namespace: str) -> tuple[Plain, ...]:
    selected = "selector: {matchLabels: {app: web}}"
    return (
        make("PeerAuthentication", name, "{mtls: {mode: STRICT}}", namespace),
        make("PeerAuthentication", name, "{mtls: {mode: PERMISSIVE}}", namespace),
        make("PeerAuthentication", name, f"{{{selected}, mtls: {{mode: STRICT}}}}", namespace),
        make("PeerAuthentication", name, f"{{{selected}, portLevelMtls: {{'80': {{mode: PERMISSIVE}}}}}}", namespace),
        make("PeerAuthentication", name, f"{{{selected}, portLevelMtls: {{'80': {{mode: STRICT}}}}}}", namespace),
    )


def _remote(network: str, address: str) -> Plain:
    spec = f"{{gatewayClassName: istio-remote, listeners: [{{name: h, port: 15008, protocol: HBONE}}], addresses: [{{value: {address}}}]}}"
    return make(
        "Gateway",
        "remote",
        spec,
        "istio-system",
        apiVersion=GATEWAY_API,
        labels=f"{{topology.istio.io/network: {network}}}",
    )


def _nodes(name: str) -> tuple[Plain, ...]:
    return tuple(
        make("Node", name, labels=f"{{topology.kubernetes.io/region: r, topology.kubernetes.io/zone: {zone}}}")
        for zone in ("z1", "z2")
    )


SLOTS: Mapping[str, Sequence[Plain]] = {
    **{f"Pod {namespace}/p{number}": _pods(number, namespace) for namespace in ("a", "b") for number in (1, 2, 3, 4)},
    **{
        f"Service {namespace}/{name}": _services(name, namespace, f"10.96.{number}.1")
        for number, (namespace, name) in enumerate((("a", "web"), ("a", "db"), ("b", "web")))
    },
    **{
        f"EndpointSlice a/{name}": (
            endpoint_slice(name, at("10.1.0.1", "p1"), at("10.1.0.2", "p2")),
            endpoint_slice(name, at("10.3.0.1"), at("10.1.0.3", "p3")),
            endpoint_slice(name, at("10.3.0.1", conditions="{ready: false}")),
        )
        for name in ("web", "db")
    },
    "ServiceEntry a/e": _entries("e", "a", 1),
    "ServiceEntry a/f": _entries("f", "a", 2),
    "ServiceEntry b/e": _entries("e", "b", 3),
    "WorkloadEntry a/vm": (
        make("WorkloadEntry", "vm", "{address: 10.4.0.1, labels: {app: web}, serviceAccount: vm, weight: 2}"),
        make("WorkloadEntry", "vm", "{address: vm.example, labels: {app: db}, network: other, ports: {http: 81}}"),
    ),
    "Gateway a/w": _gateways("w", "a"),
    "Gateway b/w": _gateways("w", "b"),
    "Gateway remote": (_remote("other", "9.9.9.9"), _remote("other", "gw.example"), _remote("far", "9.9.9.8")),
    "Namespace a": (make("Namespace", "a"), make("Namespace", "a", labels="{istio.io/use-waypoint: w}")),
    "Namespace istio-system": tuple(
        make("Namespace", "istio-system", labels=f"{{topology.istio.io/network: {n}}}") for n in ("east", "west")
    ),
    "Node n1": _nodes("n1"),
    "Node n2": _nodes("n2"),
    "AuthorizationPolicy a/p": _policies("p", "a"),
    "AuthorizationPolicy a/q": _policies("q", "a"),
    "AuthorizationPolicy root": _policies("p", "istio-system"),
    "PeerAuthentication a/p": _peers("p", "a"),
    "PeerAuthentication a/q": _peers("q", "a"),
    "PeerAuthentication root": _peers("p", "istio-system"),
}
NAMES = (
    "a/web.a.svc.cluster.local",
    "b/web.b.svc.cluster.local",
    "a/db.a.svc.cluster.local",
    "a/x.example",
    "b/x.example",
    "a/absent.example",
    "east/10.1.0.1",
    "/10.1.0.1",
    "/10.1.1.2",
    "east/10.96.0.1",
    "/10.96.0.1",
    "/10.97.0.1",
    "/10.2.0.1",
    "/10.4.0.1",
    "/10.3.0.1",
    "/1.1.1.1",
    "Kubernetes//Pod/a/p1",
    "Kubernetes//Pod/b/p3",
    "Kubernetes//Pod/a/absent",
    "Kubernetes/networking.istio.io/WorkloadEntry/a/vm",
    "Kubernetes/networking.istio.io/ServiceEntry/a/e/10.2.0.1",
    "Kubernetes/discovery.k8s.io/EndpointSlice/a/web-0/10.3.0.1",
)
"""Names that a ztunnel may request. Some never exist."""


def rows_at(slot: str, variant: int) -> dict[Any, Any]:
    """Return the rows of a slot for one of its objects or, at -1, for none."""
    if variant >= 0:
        return dict(rows_of([SLOTS[slot][variant]]))
    return dict.fromkeys(rows_of([SLOTS[slot][0]]))
