"""Mistakes in files: the messages name the cause and the remedy."""

from __future__ import annotations

import pytest
import yaml

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.analysis import add_surroundings, analyze, read_objects
from pilot.mesh.analysis.listed import CHECKS
from pilot.settings.parse import load

INGRESS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: istio-ingressgateway, namespace: istio-system}
spec:
  template:
    metadata: {labels: {istio: ingressgateway}}
    spec: {containers: [{name: istio-proxy, image: auto}]}
"""
CART = """
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {selector: {app: cart}, ports: [{name: http, port: 80, targetPort: 8080}]}
"""
CART_V1 = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: cart, namespace: shop}
spec:
  template:
    metadata: {labels: {app: cart, version: v1}}
    spec: {containers: [{name: c, image: cart, ports: [{name: web, containerPort: 8080}]}]}
"""
CART_RULE = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cart, namespace: shop}
spec: {host: cart, subsets: [{name: v1, labels: {version: v1}}]}
"""


def findings(*documents: str) -> list[str]:
    """Return the problems in a file as `severity code: path: message`."""
    objects = read_objects({"file.yaml": "\n---\n".join(documents).encode()})
    problems = analyze(objects, MeshConfig(), load([], {}).settings.mesh, CHECKS)
    return [f"{p.severity} {p.code}: {p.path}: {p.message}" for p in problems]


def gateway(selector: str) -> str:
    return f"""
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: gw, namespace: shop}}
spec: {{selector: {selector}, servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [x.com]}}]}}
"""


def policy(labels: str, rules: str = "[{}]", namespace: str = "shop") -> str:
    return f"""
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: p, namespace: {namespace}}}
spec: {{selector: {{matchLabels: {labels}}}, rules: {rules}}}
"""


# -- Pod templates are workloads


def test_a_subset_has_the_workload_of_a_template() -> None:
    assert findings(CART, CART_V1, CART_RULE) == []


def test_a_subset_has_the_workload_of_a_pod_that_has_not_run() -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop, labels: {app: cart, version: v1}}\nspec: {}"
    assert findings(CART, pod, CART_RULE) == []


def test_a_subset_has_the_workload_of_a_running_pod_without_endpoint_slice() -> None:
    pod = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: shop, labels: {app: cart, version: v1}}
status: {podIP: 10.0.0.1, phase: Running}
"""
    assert findings(CART, pod, CART_RULE) == []
    assert findings(CART, pod, CART_RULE.replace("version: v1", "version: v2")) == [
        "warning subset-without-endpoints: spec.subsets[0].labels: no endpoint of cart has the labels version: v2; "
        "values of version are v1"
    ]


def test_a_subset_without_known_workloads_is_not_reported() -> None:
    assert findings(CART, CART_RULE) == []


def test_a_subset_that_no_template_of_the_service_has_is_reported() -> None:
    other = CART_V1.replace("app: cart, version: v1", "app: cart, version: '1.0'")
    elsewhere = CART_V1.replace("app: cart", "app: other").replace("name: cart", "name: other")
    assert findings(CART, other, elsewhere, CART_RULE) == [
        "warning subset-without-endpoints: spec.subsets[0].labels: no endpoint of cart has the labels version: v1; "
        "values of version are 1.0"
    ]


def test_a_gateway_whose_selector_is_misspelt_names_the_template() -> None:
    assert findings(INGRESS, gateway("{istio: ingress-gateway}")) == [
        "warning selector-without-workloads: spec.selector: no workload has the labels istio=ingress-gateway; "
        "did you mean istio=ingressgateway (Deployment istio-system/istio-ingressgateway)?"
    ]
    assert findings(INGRESS, gateway("{istoi: ingressgateway}"))[0].endswith(
        "did you mean istio=ingressgateway (Deployment istio-system/istio-ingressgateway)?"
    )
    assert findings(INGRESS, gateway("{istio: ingressgateway}")) == []


def test_a_gateway_may_select_a_router_that_is_not_in_the_files() -> None:
    assert findings(CART, CART_V1, gateway("{istio: ingressgateway}")) == []


def test_a_policy_that_selects_no_template_of_its_namespace_is_reported() -> None:
    assert findings(CART_V1, policy("{app: crat}")) == [
        "warning selector-without-workloads: spec.selector: no workload in namespace shop has the labels app=crat; "
        "did you mean app=cart (StatefulSet shop/cart)?"
    ]
    assert findings(CART_V1, policy("{app: cart}")) == []
    assert findings(CART_V1, policy("{app: x}", namespace="other")) == []


def test_a_cron_job_has_a_template() -> None:
    job = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: night, namespace: shop}
spec: {jobTemplate: {spec: {template: {metadata: {labels: {app: night}}, spec: {containers: []}}}}}
"""
    assert findings(CART_V1, job, policy("{app: night}")) == []


def test_a_template_in_the_cluster_counts_as_a_workload() -> None:
    objects = read_objects({"file.yaml": f"{CART}\n---\n{CART_RULE}\n---\n{policy('{app: crat}')}".encode()})
    add_surroundings(objects, [yaml.safe_load(CART_V1)])
    problems = analyze(objects, MeshConfig(), load([], {}).settings.mesh, CHECKS)
    assert [p.code for p in problems] == ["selector-without-workloads"]


PROVIDERS = """
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: t, namespace: shop}
spec: {accessLogging: [{providers: [{name: envoyy}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: a, namespace: shop}
spec: {action: CUSTOM, provider: {name: oauth}, rules: [{}]}
"""


def test_a_missing_provider_is_reported_with_those_that_exist_and_the_effect() -> None:
    assert findings(PROVIDERS) == [
        "warning provider-not-found: spec.accessLogging[0].providers[0].name: the mesh config has no extension provider "
        "envoyy (did you mean envoy? its extensionProviders: envoy, prometheus, stackdriver), so no logs are sent to it",
        "warning provider-not-found: spec.provider.name: the mesh config has no external authorizer oauth "
        "(its extensionProviders: none of this kind); everything that this policy matches is denied",
    ]


# -- names of ports

NAMED = CART.replace("targetPort: 8080", "targetPort: http")


def test_a_target_port_that_no_container_has_is_reported() -> None:
    assert findings(NAMED, CART_V1) == [
        "warning target-port-not-found: spec.ports[0].targetPort: no container of the Pods that the Service selects has "
        "a port named http, so requests get 503; their ports are 8080 (web): write one of them, or name a port of the "
        "container http"
    ]
    assert findings(NAMED, CART_V1.replace("ports: [{name: web, containerPort: 8080}]", "")) == [
        "warning target-port-not-found: spec.ports[0].targetPort: no container of the Pods that the Service selects has "
        "a port named http, so requests get 503; they declare no ports: write the number of the port, or name a port of the "
        "container http"
    ]


def test_a_target_port_that_a_container_has_is_not_reported() -> None:
    second = CART_V1.replace("name: web", "name: http").replace("name: cart,", "name: cart-2,")
    assert findings(NAMED, CART_V1, second) == []
    assert findings(NAMED, CART_V1.replace("name: web", "name: http")) == []
    assert findings(NAMED) == []


# -- numbers of ports


def virtual_service(port: int, name: str = "cart", host: str = "cart") -> str:
    return f"""
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {name}, namespace: shop}}
spec: {{hosts: [{host}], http: [{{route: [{{destination: {{host: cart, port: {{number: {port}}}}}}}]}}]}}
"""


def test_a_destination_with_the_target_port_of_a_service_names_its_ports() -> None:
    assert findings(CART, CART_V1, virtual_service(8080)) == [
        "warning port-not-found: spec.http[0].route[0].destination.port.number: cart.shop.svc.cluster.local has no port "
        "8080, so requests get 503; its ports: 80; 8080 is the targetPort of port 80: write 80"
    ]
    assert findings(CART, CART_V1, virtual_service(81))[0].endswith(", so requests get 503; its ports: 80")


def test_a_policy_with_the_port_of_a_service_names_the_port_of_the_workload() -> None:
    rules = "[{to: [{operation: {ports: ['80']}}]}]"
    text = (
        "'80' matches no request, because ports are those of the workload, and 80 is a port of its Service; write 8080"
    )
    path = "spec.rules[0].to[0].operation.ports[0]"
    assert findings(CART, CART_V1, policy("{app: cart}", rules)) == [f"warning never-matches: {path}: {text}"]
    condition = "[{when: [{key: destination.port, values: ['80']}]}]"
    path = "spec.rules[0].when[0].values[0]"
    assert findings(CART, CART_V1, policy("{app: cart}", condition)) == [f"warning never-matches: {path}: {text}"]
    named = CART.replace("targetPort: 8080", "targetPort: web")
    assert findings(named, CART_V1, policy("{app: cart}", condition)) == [f"warning never-matches: {path}: {text}"]


def test_a_mode_for_the_port_of_a_service_names_the_port_of_the_workload() -> None:
    def peer(port: int) -> str:
        return f"""
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {{name: cart, namespace: shop}}
spec: {{selector: {{matchLabels: {{app: cart}}}}, portLevelMtls: {{{port}: {{mode: PERMISSIVE}}}}}}
"""

    assert findings(CART, CART_V1, peer(80)) == [
        "warning no-effect: spec.portLevelMtls[80]: the mode has no effect, because ports are those of the workload, and "
        "80 is a port of its Service; write 8080"
    ]
    assert findings(CART, CART_V1, peer(8080)) == []


def test_a_policy_with_a_port_of_the_workload_is_not_reported() -> None:
    rules = "[{to: [{operation: {ports: ['8080']}}]}]"
    assert findings(CART, CART_V1, policy("{app: cart}", rules)) == []
    both = "[{to: [{operation: {ports: ['80', '8080']}}]}]"
    assert findings(CART, CART_V1, policy("{app: cart}", both)) == []
    direct = CART_V1.replace("containerPort: 8080", "containerPort: 80")
    assert findings(CART, direct, policy("{app: cart}", "[{to: [{operation: {ports: ['80']}}]}]")) == []


# -- TLS twice

PARTNER = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: partner, namespace: shop}
spec:
  hosts: [api.partner.com]
  resolution: DNS
  ports: [{number: 443, name: https, protocol: HTTPS}, {number: 80, name: http, protocol: HTTP, targetPort: 443}]
"""


def partner_rule(policy: str) -> str:
    return f"""
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: partner, namespace: shop}}
spec: {{host: api.partner.com, trafficPolicy: {{{policy}}}}}
"""


def test_a_rule_that_adds_tls_to_tls_is_reported() -> None:
    expected = (
        "port 443 of ServiceEntry shop/partner has protocol HTTPS, so clients use TLS already, and this rule adds it a "
        "second time: requests fail; remove tls here, or declare protocol: HTTP there and let clients send plain HTTP"
    )
    for mode in ("SIMPLE", "MUTUAL, credentialName: c"):
        messages = findings(PARTNER, partner_rule(f"tls: {{mode: {mode}}}"))
        assert f"warning tls-twice: spec.trafficPolicy.tls.mode: {expected}" in messages
    level = "portLevelSettings: [{port: {number: 443}, tls: {mode: SIMPLE}}]"
    path = "spec.trafficPolicy.portLevelSettings[0].tls.mode"
    assert findings(PARTNER, partner_rule(level)) == [f"warning tls-twice: {path}: {expected}"]


def test_a_rule_that_adds_tls_to_plain_http_is_not_reported() -> None:
    level = "portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE}}]"
    assert findings(PARTNER, partner_rule(level)) == []
    route = "http: [{route: [{destination: {host: api.partner.com, port: {number: 443}}}]}]"
    to = f"""
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: egress, namespace: shop}}
spec: {{hosts: [api.partner.com], {route}}}
"""
    assert findings(PARTNER, partner_rule("tls: {mode: SIMPLE}"), to) == []


def test_the_second_virtual_service_of_a_host_has_no_effect() -> None:
    first, second = virtual_service(80), virtual_service(80, "cart-2", "cart.shop.svc.cluster.local")
    assert findings(CART, first, second) == [
        "warning host-claimed: spec.hosts[0]: the older VirtualService shop/cart claims cart.shop.svc.cluster.local in "
        "the mesh, so this one has no effect on mesh traffic to it; merge the two"
    ]


# -- the Gateway API

WEB = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}
"""
OTHER = CART.replace("shop", "other")


def test_a_gateway_in_files_needs_no_service_unless_it_names_one() -> None:
    assert findings(WEB) == []
    parent = WEB.replace("listeners:", "allowedListeners: {namespaces: {from: Same}}, listeners:")
    listeners = """
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: shop}
spec: {parentRef: {name: web}, listeners: [{name: more, port: 81, protocol: HTTP}]}
"""
    assert findings(parent, listeners) == []
    addressed = WEB.replace("listeners:", "addresses: [{type: Hostname, value: ghost}], listeners:")
    assert [one.partition(":")[0] for one in findings(addressed)] == ["warning address-not-usable"]


def http_route(rule: str) -> str:
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: r, namespace: shop}}
spec: {{parentRefs: [{{name: web}}], rules: [{{backendRefs: [{{name: cart, port: 80}}]}}, {rule}]}}
"""


def test_a_backend_of_another_namespace_without_a_grant_names_the_grant() -> None:
    remedy = "add a ReferenceGrant in the namespace other that allows HTTPRoutes of shop to use Services"
    foreign = "{name: cart, namespace: other, port: 80}"
    listed = f"{{backendRefs: [{{name: cart, port: 80}}, {foreign}, {foreign}]}}"
    assert findings(CART, OTHER, WEB, http_route(listed)) == [
        "warning ref-not-permitted: spec.rules[1].backendRefs[1]: Service other/cart is in another namespace, and no "
        f"ReferenceGrant allows its use; {remedy}"
    ]
    mirror = f"{{filters: [{{type: RequestMirror, requestMirror: {{backendRef: {foreign}}}}}]}}"
    assert findings(CART, OTHER, WEB, http_route(mirror))[0].startswith(
        "warning ref-not-permitted: spec.rules[1].filters[0].requestMirror.backendRef: Service other/cart "
    )


@pytest.mark.parametrize(
    ("source", "target", "remedy"),
    [
        (
            "",
            "",
            "in spec.from of ReferenceGrant other/all, HTTPRoute has the group ''; write 'gateway.networking.k8s.io'",
        ),
        (
            "gateway.networking.k8s.io",
            "v1",
            "in spec.to of ReferenceGrant other/all, Service has the group 'v1'; write ''",
        ),
    ],
)
def test_a_grant_with_a_wrong_group_is_named(source: str, target: str, remedy: str) -> None:
    grant = f"""
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {{name: all, namespace: other}}
spec:
  from: [{{group: "{source}", kind: HTTPRoute, namespace: shop}}]
  to: [{{group: "{target}", kind: Service}}]
"""
    foreign = "{backendRefs: [{name: cart, namespace: other, port: 80}]}"
    assert findings(CART, OTHER, WEB, grant, http_route(foreign))[-1].endswith(f"allows its use; {remedy}")


def test_a_route_of_a_kind_that_the_listener_does_not_accept_names_the_kinds() -> None:
    route = (
        http_route("{backendRefs: [{name: cart, port: 80}]}")
        .replace("HTTPRoute", "TCPRoute")
        .replace("/v1", "/v1alpha2")
    )
    assert findings(CART, WEB, route)[0].endswith(
        'kind gateway.networking.k8s.io/TCPRoute is not allowed; the listener "http" with the protocol HTTP accepts '
        "GRPCRoute, HTTPRoute; a TCPRoute requires the protocol TCP or TLS"
    )


def test_the_domain_of_a_wildcard_listener_is_not_suggested_as_the_wildcard() -> None:
    gateway = WEB.replace("name: http,", 'name: http, hostname: "*.x.com",')
    route = http_route("{backendRefs: [{name: cart, port: 80}]}").replace("spec: {", "spec: {hostnames: [HOST], ")
    assert findings(CART, gateway, route.replace("HOST", "x.com"))[0].endswith(
        "; *.x.com does not include x.com, so add a listener with the hostname x.com"
    )
    assert findings(CART, gateway, route.replace("HOST", "shop.x.con"))[0].endswith("; did you mean shop.x.com?")


def test_a_certificate_of_another_namespace_without_a_grant_has_one_finding() -> None:
    tls = "tls: {certificateRefs: [{name: cert, namespace: other}]}"
    gateway = WEB.replace("protocol: HTTP}", f"protocol: HTTPS, {tls}}}")
    assert findings(gateway) == [
        "warning ref-not-permitted: spec.listeners[0].tls.certificateRefs[0]: Secret other/cert is in another namespace, "
        "and no ReferenceGrant allows its use; add a ReferenceGrant in the namespace other that allows Gateways of shop "
        "to use Secrets"
    ]


def test_a_policy_that_names_a_port_by_its_number_lists_the_names() -> None:
    policy = """
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: p, namespace: shop}
spec:
  targetRefs: [{group: "", kind: Service, name: cart, sectionName: "80"}]
  validation: {hostname: cart, wellKnownCACertificates: System}
"""
    assert findings(CART, WEB, http_route("{}"), policy) == [
        'warning target-not-found: spec.targetRefs[0].sectionName: Service shop/cart has no port named "80": sectionName '
        "is the name of a port; known: http"
    ]


# -- ports without requests


TCP_CART = CART.replace("name: http,", "name: tcp-web,")
TWO_PORTS = CART.replace("targetPort: 8080}", "targetPort: 8080}, {name: mysql, port: 3307}")


@pytest.mark.parametrize(
    ("rule", "path", "effect"),
    [
        (
            "{to: [{operation: {methods: [GET], paths: [/x]}}]}",
            "to[0].operation.methods",
            "methods, paths, and this rule allows nothing, and connections that no other rule allows are denied",
        ),
        (
            "{from: [{source: {principals: ['*']}}], when: [{key: 'request.headers[x]', values: [a]}]}",
            "when[0].key",
            "request.headers[x], and this rule allows nothing, and connections that no other rule allows are denied",
        ),
    ],
)
def test_a_rule_with_http_attributes_for_a_tcp_port_is_reported(rule: str, path: str, effect: str) -> None:
    assert findings(TCP_CART, CART_V1, policy("{app: cart}", f"[{rule}]")) == [
        f"warning no-effect: spec.rules[0].{path}: port 80 is TCP by its name tcp-web, so there are no requests with "
        f"{effect}; if the port serves HTTP, name it http-web or set its appProtocol: http; otherwise remove the field"
    ]
    assert findings(CART, CART_V1, policy("{app: cart}", f"[{rule}]")) == []
    assert findings(TCP_CART, policy("{app: cart}", f"[{rule}]")) == []
    assert (
        findings(TCP_CART, CART_V1, TWO_PORTS.replace("name: cart,", "name: b,"), policy("{app: cart}", f"[{rule}]"))
        == []
    )


def test_a_deny_rule_with_http_attributes_for_a_tcp_port_denies_all() -> None:
    rule = "{to: [{operation: {ports: ['3307'], methods: [GET]}}]}"
    denies = policy("{app: cart}", f"[{rule}], action: DENY")
    assert findings(TWO_PORTS, CART_V1, denies) == [
        "warning no-effect: spec.rules[0].to[0].operation.methods: port 3307 is MySQL by its name mysql, so there are no "
        "requests with methods, and this rule ignores them and denies every connection that its other conditions match; "
        "if the port serves HTTP, name it http or set its appProtocol: http; otherwise remove the field"
    ]
    assert findings(TWO_PORTS, CART_V1, denies.replace("'3307'", "'3307', '8080'")) == []
    assert findings(TWO_PORTS, CART_V1, denies.replace("methods: [GET]", "notPorts: ['1']")) == []


def test_a_rule_with_http_attributes_for_a_gateway_is_not_reported() -> None:
    router = INGRESS.replace("istio-system", "shop")
    ingress = CART.replace("app: cart", "istio: ingressgateway").replace("name: http,", "name: https,")
    rule = "[{to: [{operation: {methods: [GET]}}]}]"
    edge = gateway("{istio: ingressgateway}")
    assert findings(router, ingress, edge, policy("{istio: ingressgateway}", rule)) == []


def http_rules(rules: str, more: str = "") -> str:
    return f"""
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: cart, namespace: shop}}
spec: {{hosts: [cart], {more} http: {rules}}}
"""


TO_CART = "route: [{destination: {host: cart}}]"
CART_HOST = "cart.shop.svc.cluster.local"


@pytest.mark.parametrize(
    ("ports", "text"),
    [
        (
            "{name: tcp-web, port: 80}",
            f"port 80 is TCP by its name tcp-web, so http routes have no effect on requests to {CART_HOST} in the mesh; if "
            "the port serves HTTP, name it http-web or set its appProtocol: http; otherwise use tcp:",
        ),
        (
            "{name: db, port: 3306}",
            f"port 3306 is TCP, so http routes have no effect on requests to {CART_HOST} in the mesh; if the port serves "
            "HTTP, set its appProtocol: http; otherwise use tcp:",
        ),
        (
            "{name: https, port: 443}",
            f"port 443 is HTTPS by its name https, so http routes have no effect on requests to {CART_HOST} in the mesh; "
            f"use tls: with match: [{{port: 443, sniHosts: [{CART_HOST}]}}]",
        ),
    ],
)
def test_http_routes_for_a_host_without_http_ports_are_reported(ports: str, text: str) -> None:
    cart = CART.replace("{name: http, port: 80, targetPort: 8080}", ports)
    assert findings(cart, http_rules(f"[{{{TO_CART}}}]")) == [f"warning no-effect: spec.http: {text}"]
    assert findings(cart, http_rules(f"[{{match: [{{gateways: [g]}}], {TO_CART}}}]", "gateways: [g, mesh],"))[1:] == []


@pytest.mark.parametrize(
    "port",
    ["{name: web, port: 80}", "{name: tcp, port: 80, appProtocol: http}", "{name: grpc, port: 80}", "{port: 80}"],
)
def test_http_routes_for_a_host_with_http_ports_are_not_reported(port: str) -> None:
    cart = CART.replace("{name: http, port: 80, targetPort: 8080}", port)
    assert findings(cart, http_rules(f"[{{match: [{{port: 80}}], {TO_CART}}}]")) == []


def test_a_match_with_a_port_without_requests_is_reported() -> None:
    cart = CART.replace("targetPort: 8080}", "targetPort: 8080}, {name: mysql, port: 3307}")
    rules = f"[{{match: [{{port: 80}}, {{port: 3307}}], {TO_CART}}}]"
    assert findings(cart, http_rules(rules))[-1] == (
        "warning never-matches: spec.http[0].match[1].port: port 3307 is MySQL by its name mysql, so no request matches; "
        "if it serves HTTP, name it http or set its appProtocol: http"
    )


def test_a_match_with_a_target_port_names_the_port() -> None:
    assert findings(CART, http_rules(f"[{{match: [{{port: 8080}}], {TO_CART}}}]")) == [
        "warning never-matches: spec.http[0].match[0].port: the hosts have no port 8080, so no request matches; 8080 is "
        "the targetPort of port 80: write 80"
    ]
    at_gateway = http_rules(f"[{{match: [{{port: 8080}}], {TO_CART}}}]", "gateways: [gw],")
    assert findings(CART, gateway("{istio: ingressgateway}"), at_gateway) == [
        "warning host-not-served: spec.hosts[0]: none of its gateways has a server for cart.shop.svc.cluster.local"
    ]
    sidecar = """
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: s, namespace: shop}
spec: {egress: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["./*"]}]}
"""
    assert findings(CART, sidecar, http_rules(f"[{{match: [{{port: 8080}}], {TO_CART}}}]")) == []


def test_port_settings_with_a_target_port_name_the_port() -> None:
    rule = CART_RULE.replace(
        "subsets: [{name: v1, labels: {version: v1}}]", "trafficPolicy: {portLevelSettings: [PORT]}"
    )
    assert findings(CART, rule.replace("PORT", "{port: {number: 8080}, tls: {mode: DISABLE}}")) == [
        "warning port-not-found: spec.trafficPolicy.portLevelSettings[0].port.number: cart has no port 8080, so its "
        "settings have no effect; its ports: 80; 8080 is the targetPort of port 80: write 80"
    ]
    assert findings(CART, rule.replace("PORT", "{port: {number: 80}, tls: {mode: DISABLE}}")) == []


# -- Secrets in other namespaces


ROUTER = """
apiVersion: v1
kind: Pod
metadata: {name: router-0, namespace: istio-system, labels: {istio: ingressgateway}}
spec: {}
"""


def secret(namespace: str) -> str:
    return f"""
apiVersion: v1
kind: Secret
metadata: {{name: cert, namespace: {namespace}}}
type: kubernetes.io/tls
data: {{tls.crt: "", tls.key: ""}}
"""


def test_a_secret_that_is_not_in_the_namespace_of_the_router_is_named() -> None:
    tls = "port: {number: 443, name: https, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: cert}"
    edge = gateway("{istio: ingressgateway}").replace("port: {number: 80, name: http, protocol: HTTP}", tls)
    missing = "warning credential-not-found: spec.servers[0].tls.credentialName: Secret cert not found in namespace istio-system"
    assert findings(ROUTER, edge) == [missing]
    assert findings(ROUTER, edge, secret("shop")) == [
        f"{missing}; it is in namespace shop, but proxies read Secrets only in their own: create it there"
    ]
    assert findings(ROUTER, edge, *map(secret, ("a", "b", "c", "shop"))) == [missing]


def test_a_secret_that_is_not_in_the_namespace_of_a_listener_is_named() -> None:
    tls = "tls: {certificateRefs: [{name: cert}]}"
    edge = WEB.replace("protocol: HTTP}", f"protocol: HTTPS, {tls}}}")
    assert findings(edge)[0].endswith("secret shop/cert not found")
    assert [one.partition(" not found")[2] for one in findings(edge, secret("other"))] == [
        "; Secret cert is in namespace other: create it in shop, or set the namespace of the reference and add a "
        "ReferenceGrant there that allows Gateways of shop to use Secrets"
    ]
