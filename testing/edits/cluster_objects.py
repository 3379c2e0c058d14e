"""Services, EndpointSlices, Pods, Nodes and Namespaces of two clusters, for random edits of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testing.edits.slot import Slot, one_of
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod

WEST = "west"
"""The remote cluster. It has objects with the same names as the local one."""
HTTP = "ports: [{name: http, port: 80, targetPort: 8080}]"
BOTH = "ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 9000}]"
MESH_LABEL = "security.istio.io/tlsMode: istio"
WEB_AT = at("10.1.0.1", "web-0"), at("10.7.0.1")
API_AT = at("10.1.0.2", "api-0", namespace="b"), at("10.7.0.2")
TWO_PORTS = "[{name: http, port: 8080}, {name: tcp, port: 9000}]"


def service(name: str, namespace: str, ip: str, *specs: str, **more: Any) -> list[Plain]:
    """Return variants of a Service. Each spec is the rest of its fields."""
    return [
        make(
            "Service",
            name,
            f"{{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: {name}}}, {spec}}}",
            namespace,
            **more,
        )
        for spec in specs
    ]


def slices(name: str, namespace: str, addresses: Sequence[str], **more: Any) -> Slot:
    """Return a slot of an EndpointSlice: with all addresses, with one, with none, and with one that is not ready."""
    subsets = [(*addresses,), addresses[:1], (), (addresses[0].replace("ready: true", "ready: false"),)]
    return one_of(*(endpoint_slice(name, *s, namespace=namespace, ports=TWO_PORTS, **more) for s in subsets))


def pods(name: str, namespace: str, ip: str, *labels: str) -> Slot:
    """Return a slot of a Pod: with each set of labels, on another node with another account, not ready, and failed."""
    spec = "{{nodeName: {}, serviceAccountName: {}, containers: [{{name: c, image: i, ports: [{{name: web, containerPort: 8080}}]}}]}}"
    first = labels[0]
    return one_of(
        *(pod(name, ip, namespace, spec.format("n1", "one"), text) for text in labels),
        pod(name, ip, namespace, spec.format("n2", "two"), first),
        pod(name, ip, namespace, spec.format("n1", "one"), first, ready=False),
        pod(name, ip, namespace, spec.format("n1", "one"), first, phase="Failed"),
    )


SHARED = [
    one_of(make("ServiceExport", "web")),
    one_of(*(make("ServiceImport", "web", f"{{ips: [{ip}]}}") for ip in ("10.99.0.1", "10.99.0.2", ""))),
]
KUBERNETES = [
    one_of(
        *service(
            "web",
            "a",
            "10.96.0.1",
            BOTH,
            HTTP,
            "ports: [{name: tcp, port: 80, targetPort: 9000}]",
            "ports: [{port: 80, targetPort: web}]",
        ),
        *service("web", "a", "10.96.0.1", BOTH, annotations="{networking.istio.io/exportTo: '.'}"),
        *service("web", "a", "None", BOTH),
        *service("web", "a", "10.96.0.1", BOTH, labels="{istio.io/persistent-session: c}"),
        *service("web", "a", "10.96.0.1", f"externalIPs: [9.9.9.8], {BOTH}", day=3),
        make(
            "Service",
            "web",
            f"{{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], selector: {{app: web, version: v1}}, {BOTH}}}",
        ),
        *service("web", "a", "10.96.0.1", BOTH, labels="{scope: global}"),
    ),
    one_of(
        *service(
            "api",
            "b",
            "10.96.0.2",
            BOTH,
            HTTP,
            "internalTrafficPolicy: Local, " + BOTH,
            "trafficDistribution: PreferClose, " + HTTP,
            day=2,
        ),
        *service("api", "b", "None", HTTP),
        make(
            "Service", "api", "{type: ExternalName, externalName: x.example.com, ports: [{name: http, port: 80}]}", "b"
        ),
    ),
    one_of(
        *service(
            "db",
            "b",
            "10.96.0.3",
            "ports: [{name: tcp, port: 9000}]",
            "ports: [{name: mongo, port: 9000}]",
            "ports: [{port: 9000}]",
            day=3,
        ),
        *service(
            "db", "b", "10.96.0.1", "ports: [{name: tcp, port: 9000}, {name: dns, port: 53, protocol: UDP}]", day=3
        ),
    ),
    one_of(
        *service(
            "head",
            "a",
            "None",
            "ports: [{name: tcp, port: 9000}]",
            "ports: [{name: http, port: 80, targetPort: 8080}]",
            "publishNotReadyAddresses: true, " + HTTP,
        ),
        make(
            "Service",
            "head",
            "{clusterIP: 10.96.0.4, clusterIPs: [10.96.0.4, 'fd00:96::4'], ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{name: http, port: 80}]}",
        ),
    ),
    one_of(
        make(
            "Service",
            "alias",
            "{type: ExternalName, externalName: api.b.svc.cluster.local, ports: [{name: http, port: 80}]}",
            "a",
        ),
        make("Service", "alias", "{type: ExternalName, externalName: web.a.svc.cluster.local}", "a"),
        make(
            "Service",
            "alias",
            "{clusterIP: 10.96.0.5, clusterIPs: [10.96.0.5], selector: {app: api}, ports: [{name: http, port: 80}]}",
            "a",
        ),
    ),
    one_of(
        make(
            "Service",
            "eastwest",
            "{clusterIP: 10.96.0.9, externalIPs: [9.9.9.9], ports: [{name: tls, port: 15443}]}",
            "istio-system",
            labels="{topology.istio.io/network: net2}",
        ),
        make(
            "Service",
            "eastwest",
            "{clusterIP: 10.96.0.9, externalIPs: [9.9.9.9], ports: [{name: tls, port: 15443}]}",
            "istio-system",
            labels="{topology.istio.io/network: net1}",
        ),
        make(
            "Service",
            "eastwest",
            "{type: LoadBalancer, clusterIP: 10.96.0.9, ports: [{name: tls, port: 15443}]}",
            "istio-system",
            labels="{topology.istio.io/network: net2}",
            status={"loadBalancer": {"ingress": [{"ip": "9.9.9.7"}]}},
        ),
        make(
            "Service",
            "eastwest",
            "{clusterIP: 10.96.0.9, externalIPs: [9.9.9.6], ports: [{name: tls, port: 15443}]}",
            "istio-system",
        ),
        make(
            "Service",
            "eastwest",
            "{type: NodePort, clusterIP: 10.96.0.9, ports: [{name: tls, port: 15443, nodePort: 31443}]}",
            "istio-system",
            labels="{topology.istio.io/network: net2}",
            annotations="{traffic.istio.io/nodeSelector: '{}'}",
        ),
    ),
    one_of(
        *(
            make(
                "Service",
                "nodes",
                "{type: NodePort, clusterIP: 10.96.0.8, ports: [{name: tls, port: 15443, nodePort: 31443}]}",
                "istio-system",
                labels="{topology.istio.io/network: net2}",
                annotations=f"{{traffic.istio.io/nodeSelector: '{selector}'}}",
            )
            for selector in ("{}", '{"topology.kubernetes.io/region": "r1"}')
        )
    ),
    one_of(
        make(
            "Service",
            "listed",
            "{clusterIP: 10.96.0.11, clusterIPs: [10.96.0.11], ports: [{name: http, port: 80}]}",
            "c",
        )
    ),
    one_of(
        *(
            endpoint_slice(
                "listed",
                at("10.1.0.8", pod_name, namespace="c"),
                namespace="c",
                ports=f"[{{name: http, port: {port}}}]",
            )
            for pod_name, port in (("stray-0", 8080), ("stray-0", 8081), ("other-0", 8080))
        )
    ),
    slices("web", "a", WEB_AT),
    slices("api", "b", API_AT),
    slices("db", "b", (at("10.1.0.3", "none-0", namespace="b"),)),
    slices("head", "a", (at("10.1.0.4", "dual-0"), at("10.1.0.1", "web-0"))),
    one_of(
        endpoint_slice("head", at("10.1.0.1", "web-0"), ports="[{name: http, port: 8080}]", name="head-1"),
        endpoint_slice("web", at("10.1.0.5", "six-0"), ports=TWO_PORTS, name="head-1"),
    ),
    pods(
        "web-0",
        "a",
        "10.1.0.1",
        f"{{app: web, version: v1, {MESH_LABEL}}}",
        f"{{app: web, version: v2, {MESH_LABEL}, topology.istio.io/network: net2}}",
        "{app: nobody}",
    ),
    pods(
        "api-0", "b", "10.1.0.2", f"{{app: api, {MESH_LABEL}}}", "{app: api, version: v2}", f"{{app: db, {MESH_LABEL}}}"
    ),
    pods("none-0", "b", "10.1.0.3", f"{{app: db, {MESH_LABEL}}}", "{app: api, istio.io/draining: 'true'}"),
    pods("dual-0", "a", "10.1.0.4", f"{{app: head, {MESH_LABEL}}}", f"{{app: web, {MESH_LABEL}}}"),
    pods("ingress-0", "edge", "10.1.0.9", "{istio: ingress}", "{istio: egress}"),
    pods("lost-0", "a", "10.7.0.1", f"{{app: web, {MESH_LABEL}}}"),
    pods(
        "stray-0",
        "c",
        "10.1.0.8",
        "{app: far, service.istio.io/canonical-name: far}",
        "{app: web, topology.istio.io/network: net2}",
    ),
    one_of(
        make("Node", "n1", labels="{topology.kubernetes.io/region: r1}"),
        make("Node", "n1", labels="{topology.kubernetes.io/region: r2, topology.kubernetes.io/zone: z2}"),
    ),
    one_of(
        make(
            "Node",
            "n2",
            labels="{topology.kubernetes.io/region: r1, topology.kubernetes.io/zone: z1}",
            status={"addresses": [{"type": "ExternalIP", "address": "9.9.8.1"}]},
        ),
        make(
            "Node",
            "n2",
            labels="{topology.kubernetes.io/region: r2}",
            status={"addresses": [{"type": "ExternalIP", "address": "9.9.8.2"}]},
        ),
    ),
    *(
        one_of(
            make("Namespace", name, labels="{istio-injection: enabled}"),
            make("Namespace", name, annotations="{networking.istio.io/exportTo: '.'}"),
            make("Namespace", name, labels="{topology.istio.io/network: net1}"),
            make("Namespace", name, labels="{istio.io/use-waypoint: wp, istio.io/use-waypoint-namespace: a}"),
            make(
                "Namespace",
                name,
                labels="{istio-injection: enabled}",
                annotations="{networking.istio.io/traffic-distribution: PreferClose}",
            ),
        )
        for name in ("a", "b", "istio-system")
    ),
    *SHARED,
]

WEST_KUBERNETES = [
    slot._replace(name=f"{slot.name} {WEST}", cluster=WEST)
    for slot in (
        one_of(
            *service("web", "a", "10.97.0.1", BOTH, HTTP, "ports: [{name: tcp, port: 80, targetPort: 9000}]"),
            *service("web", "a", "None", HTTP, day=3),
        ),
        one_of(*service("west", "b", "10.97.0.3", HTTP, "ports: [{name: tcp, port: 9000}]", day=4)),
        slices("web", "a", (at("10.2.0.1", "web-0"), at("10.2.0.9"))),
        pods(
            "web-0",
            "a",
            "10.2.0.1",
            f"{{app: web, version: v2, {MESH_LABEL}}}",
            f"{{app: web, {MESH_LABEL}, topology.istio.io/network: net2}}",
        ),
        one_of(
            make("Node", "n1", labels="{topology.kubernetes.io/region: r3}"),
            make("Node", "n1", labels="{topology.kubernetes.io/region: r1}"),
        ),
        one_of(
            make("Namespace", "istio-system", labels="{topology.istio.io/network: net2}"),
            make("Namespace", "istio-system"),
        ),
        *SHARED,
    )
]
