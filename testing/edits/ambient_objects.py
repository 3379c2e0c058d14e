"""An ambient part of a mesh for random edits: a waypoint in namespace a, its users, and the policies attached to them."""

from __future__ import annotations

from testing.edits.connected_proxies import STOCK, authenticated, proxy_slot
from testing.edits.gateway_objects import API, cluster_wide, gateway_object
from testing.edits.slot import Slot, one_of
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import proxy

NAME = "gateway.networking.k8s.io/gateway-name"
LABELS = f"{{{NAME}: wp, gateway.istio.io/managed: istio.io-mesh-controller}}"
HTTP, BOTH = (
    "ports: [{name: http, port: 80, targetPort: 8080}]",
    "ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 9000}, {name: any, port: 9001}]",
)
REDIRECTED = {"ambient.istio.io/redirection": "enabled"}
FROM_ALL = "{name: mesh, port: 15008, protocol: HBONE, allowedRoutes: {namespaces: {from: All}}}"
CART = "cart.a.svc.cluster.local"
GATEWAY = f"targetRefs: [{{group: {API.partition('/')[0]}, kind: Gateway, name: wp}}]"
SERVICE = "targetRefs: [{group: '', kind: Service, name: cart}]"
CLASS = f"targetRefs: [{{group: {API.partition('/')[0]}, kind: GatewayClass, name: istio-waypoint}}]"
SOURCE = "[{from: [{source: {principals: [cluster.local/ns/a/sa/one]}}]}]"


def cart(ip: str, ports: str, labels: str) -> Plain:
    return make(
        "Service",
        "cart",
        f"{{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: cart}}, {ports}}}",
        "a",
        labels=f"{{istio.io/use-waypoint: {labels}}}",
    )


def gateway(traffic: str, listener: str) -> Plain:
    return gateway_object(
        "Gateway",
        "wp",
        f"gatewayClassName: istio-waypoint, listeners: [{listener}]",
        "a",
        labels={"istio.io/waypoint-for": traffic},
    )


PROXY = proxy_slot(
    authenticated(
        proxy(
            "waypoint",
            "wp-0",
            "a",
            "10.1.0.20",
            {NAME: "wp", "gateway.istio.io/managed": "istio.io-mesh-controller"},
            NETWORK="net1",
            NODE_NAME="n1",
        )
    ),
    {"metadata": {"NETWORK": "net2", "ANNOTATIONS": {"ambient.istio.io/xfcc-include-client-identity": "true"}}},
    {"metadata": {"DISABLE_HBONE_SEND": "true"}},
    {"metadata": {"LABELS": {NAME: "other"}}},
    {"extensions": STOCK, "metadata": {"INTERNAL_LISTENERS": "true"}},
    {"extensions": STOCK},
)
SIDECAR = proxy_slot(
    proxy("sidecar", "tunnel-0", "b", "10.1.0.21", {"app": "cart"}, ENABLE_HBONE="true", NETWORK="net1"),
    {"metadata": {"ENABLE_HBONE": "false"}},
    {"metadata": {"DISABLE_HBONE_SEND": "true"}},
)
AMBIENT: list[Slot] = [
    PROXY,
    SIDECAR,
    cluster_wide("GatewayClass", "istio-waypoint", API, "controllerName: istio.io/mesh-controller"),
    one_of(
        *(
            make(
                "GatewayClass",
                "foreign",
                "{controllerName: example.com/other}",
                "",
                apiVersion=API,
                labels=f"{{istio.io/waypoint-for: {traffic}}}",
            )
            for traffic in ("all", "none")
        )
    ),
    one_of(
        gateway("service", FROM_ALL),
        gateway("all", FROM_ALL),
        gateway("none", FROM_ALL),
        gateway("all", "{name: mesh, port: 15008, protocol: HBONE}"),
        gateway_object(
            "Gateway",
            "wp",
            f"gatewayClassName: istio-waypoint, listeners: [{FROM_ALL}]",
            "a",
            annotations={"gateway.istio.io/name-override": "cart"},
        ),
        gateway_object(
            "Gateway",
            "wp",
            f"gatewayClassName: foreign, listeners: [{FROM_ALL}]",
            "a",
            status={"addresses": [{"value": "10.96.0.40"}]},
        ),
    ),
    one_of(
        make(
            "Service",
            "wp",
            f"{{clusterIP: 10.96.0.40, clusterIPs: [10.96.0.40], selector: {{{NAME}: wp}}, ports: [{{name: mesh, port: 15008}}]}}",
            "a",
            labels=LABELS,
        ),
        make(
            "Service",
            "wp",
            f"{{clusterIP: 10.96.0.41, clusterIPs: [10.96.0.41], selector: {{{NAME}: wp}}, ports: [{{name: mesh, port: 15008}}]}}",
            "a",
            labels=LABELS,
        ),
    ),
    one_of(pod("wp-0", "10.1.0.20", "a", "{serviceAccountName: wp}", LABELS)),
    one_of(
        *(
            endpoint_slice("wp", *addresses, namespace="a", ports="[{name: mesh, port: 15008}]")
            for addresses in ((at("10.1.0.20", "wp-0"),), ())
        )
    ),
    one_of(
        cart("10.96.0.42", BOTH, "wp, istio.io/ingress-use-waypoint: 'true'"),
        cart("10.96.0.42", HTTP, "wp"),
        cart("10.96.0.43", BOTH, "none"),
        cart("None", BOTH, "wp"),
    ),
    one_of(
        *(
            endpoint_slice(
                "cart",
                *addresses,
                namespace="a",
                ports="[{name: http, port: 8080}, {name: tcp, port: 9000}, {name: any, port: 9001}]",
            )
            for addresses in ((at("10.1.0.22", "cart-0"), at("10.7.0.22")), (at("10.1.0.22", "cart-0"),), ())
        )
    ),
    one_of(
        pod(
            "cart-0", "10.1.0.22", "a", "{serviceAccountName: one}", "{app: cart, version: v1}", annotations=REDIRECTED
        ),
        pod(
            "cart-0",
            "10.1.0.22",
            "a",
            "{serviceAccountName: one}",
            "{app: cart, istio.io/use-waypoint: wp}",
            annotations=REDIRECTED,
        ),
        pod(
            "cart-0",
            "10.1.0.22",
            "a",
            "{serviceAccountName: one}",
            "{app: cart, version: v2, security.istio.io/tlsMode: istio}",
        ),
        pod(
            "cart-0",
            "10.1.0.22",
            "a",
            "{serviceAccountName: one}",
            "{app: cart, topology.istio.io/network: net2}",
            annotations=REDIRECTED,
        ),
    ),
    one_of(
        make(
            "ServiceEntry",
            "wp-entry",
            "{hosts: [out.example.com], addresses: [10.50.0.1], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}",
            "a",
            labels="{istio.io/use-waypoint: wp}",
        ),
        make(
            "ServiceEntry",
            "wp-entry",
            "{hosts: [out.example.com], addresses: [10.50.0.2], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.60.0.1}]}",
            "a",
            labels="{istio.io/use-waypoint: wp}",
        ),
        make(
            "ServiceEntry",
            "wp-entry",
            "{hosts: ['*.wild.example.com'], location: MESH_EXTERNAL, resolution: DYNAMIC_DNS, ports: [{number: 80, name: http, protocol: HTTP}]}",
            "a",
            labels="{istio.io/use-waypoint: wp}",
        ),
    ),
    one_of(
        make(
            "VirtualService",
            "cart",
            f"{{hosts: [{CART}], http: [{{match: [{{uri: {{prefix: /x}}}}], route: [{{destination: {{host: {CART}, subset: v1}}}}]}}]}}",
            "a",
        ),
        make(
            "VirtualService",
            "cart",
            f"{{hosts: [{CART}], http: [{{route: [{{destination: {{host: api.b.svc.cluster.local}}}}]}}], tcp: [{{route: [{{destination: {{host: web.a.svc.cluster.local, port: {{number: 80}}}}}}]}}]}}",
            "a",
        ),
        make(
            "VirtualService",
            "cart",
            f"{{hosts: ['*.a.svc.cluster.local'], http: [{{route: [{{destination: {{host: out.example.com}}, weight: 1}}, {{destination: {{host: {CART}}}, weight: 2}}]}}]}}",
            "a",
        ),
    ),
    one_of(
        make("DestinationRule", "cart", f"{{host: {CART}, subsets: [{{name: v1, labels: {{version: v1}}}}]}}", "a"),
        make(
            "DestinationRule",
            "cart",
            f"{{host: {CART}, trafficPolicy: {{loadBalancer: {{consistentHash: {{httpHeaderName: x}}}}, outlierDetection: {{}}}}}}",
            "a",
        ),
        make(
            "DestinationRule",
            "cart",
            f"{{host: {CART}, trafficPolicy: {{loadBalancer: {{simple: PASSTHROUGH}}, tls: {{mode: SIMPLE}}}}}}",
            "a",
        ),
    ),
    one_of(
        make("AuthorizationPolicy", "wp", f"{{{GATEWAY}, rules: {SOURCE}}}", "a"),
        make("AuthorizationPolicy", "wp", f"{{{SERVICE}, action: DENY, rules: {SOURCE}}}", "a"),
        make(
            "AuthorizationPolicy",
            "wp",
            f"{{selector: {{matchLabels: {{{NAME}: wp}}}}, action: DENY, rules: {SOURCE}}}",
            "a",
        ),
    ),
    one_of(
        make("WorkloadEntry", "behind", "{address: 10.1.0.40, labels: {istio.io/use-waypoint: wp}}", "a"),
        make("WorkloadEntry", "behind", "{address: 10.1.0.41}", "a", labels="{istio.io/use-waypoint: wp}"),
    ),
    one_of(make("AuthorizationPolicy", "every-wp", f"{{{CLASS}, action: AUDIT, rules: [{{}}]}}", "istio-system")),
    one_of(
        make("Telemetry", "wp", f"{{{SERVICE}, accessLogging: [{{providers: [{{name: envoy}}]}}]}}", "a"),
        make("Telemetry", "wp", f"{{{GATEWAY}, tracing: [{{disableSpanReporting: true}}]}}", "a"),
    ),
    one_of(
        make(
            "EnvoyFilter",
            "wp",
            f"{{{GATEWAY}, configPatches: [{{applyTo: LISTENER, match: {{context: SIDECAR_INBOUND}}, patch: {{operation: MERGE, value: {{per_connection_buffer_limit_bytes: 7}}}}}}]}}",
            "a",
        )
    ),
]
