"""Routing of requests through a gateway."""

from __future__ import annotations

import msgspec
import pytest

from pilot.envoy.plans.gateway_problems import router_problems
from pilot.lib.xds_types import CLUSTER
from testing.mesh.traffic import Request
from testing.mesh.world import World, proxy
from tests.simulate.envoy import Envoy, Outcome

SERVICES = """
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: shop}
spec: {clusterIP: 10.96.0.1, selector: {app: shop}, ports: [{name: http, port: 80}, {name: tcp, port: 9000}, {name: tls, port: 443}]}
---
apiVersion: v1
kind: Service
metadata: {name: blog, namespace: blog}
spec: {clusterIP: 10.96.0.2, selector: {app: blog}, ports: [{name: http, port: 8000}]}
---
apiVersion: v1
kind: Service
metadata: {name: edge, namespace: edge}
spec:
  clusterIP: 10.96.0.3
  selector: {istio: ingress}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: https, port: 443, targetPort: 8443}]
---
apiVersion: v1
kind: Pod
metadata: {name: edge-0, namespace: edge, labels: {istio: ingress}}
spec: {containers: [{name: proxy, image: proxy}]}
status: {phase: Running, podIP: 10.1.0.8, podIPs: [{ip: 10.1.0.8}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: shop, namespace: shop}
spec: {host: shop, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}
"""
GATEWAY = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec:
  selector: {istio: ingress}
  servers:
    - {port: {number: 80, name: http, protocol: HTTP}, hosts: [shop/shop.example.com, "blog/*.example.com"], tls: {httpsRedirect: true}}
    - {port: {number: 8081, name: http-other, protocol: HTTP}, hosts: ["*"]}
    - {port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*.example.com"], tls: {mode: SIMPLE, credentialName: wild}}
    - {port: {number: 443, name: tls, protocol: TLS}, hosts: [raw.example.com], tls: {mode: PASSTHROUGH}}
    - {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ["*"]}
    - {port: {number: 9443, name: tls-tcp, protocol: TLS}, hosts: [tcp.example.com], tls: {mode: MUTUAL, credentialName: tcp}}
    - {port: {number: 15443, name: tls-mesh, protocol: TLS}, hosts: ["*.local"], tls: {mode: AUTO_PASSTHROUGH}}
"""
ROUTES = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: shop}
spec:
  hosts: [shop.example.com]
  gateways: [edge/edge]
  http:
    - match: [{uri: {prefix: /beta}, headers: {x-user: {exact: ann}}}]
      route: [{destination: {host: shop, subset: v2, port: {number: 80}}}]
    - match: [{uri: {exact: /old}}]
      redirect: {uri: /new}
    - match: [{uri: {prefix: /only-other}, port: 8081}]
      directResponse: {status: 418}
    - route:
        - {destination: {host: shop, subset: v1, port: {number: 80}}, weight: 90}
        - {destination: {host: shop, subset: v2, port: {number: 80}}, weight: 10}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: blog, namespace: blog}
spec: {hosts: [blog.example.com], gateways: [edge/edge], http: [{route: [{destination: {host: blog}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: rogue, namespace: rogue}
spec: {hosts: [shop.example.com], gateways: [edge/edge], http: [{match: [{uri: {prefix: /stolen}}], directResponse: {status: 200}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: raw, namespace: shop}
spec:
  hosts: [raw.example.com, tcp.example.com]
  gateways: [edge/edge]
  tls: [{match: [{sniHosts: [raw.example.com]}], route: [{destination: {host: shop, port: {number: 443}}}]}]
  tcp: [{route: [{destination: {host: shop, port: {number: 9000}}}]}]
"""
SHOP = "shop.shop.svc.cluster.local"
SPLIT = f"90% outbound|80|v1|{SHOP}, 10% outbound|80|v2|{SHOP}"
V2 = f"outbound|80|v2|{SHOP}"
BLOG = "outbound|8000||blog.blog.svc.cluster.local"


def envoy(*texts: str, **metadata: str) -> Envoy:
    world = World()
    for text in texts:
        world.apply(text)
    resources = world.resources(
        world.connect(proxy("router", "edge-0", "edge", "10.1.0.8", {"istio": "ingress"}, **metadata))
    )
    assert not world.failures
    return Envoy(resources)


@pytest.fixture(scope="module")
def gateway() -> Envoy:
    return envoy(SERVICES, GATEWAY, ROUTES)


def https_request(host: str, path: str = "/", **headers: str) -> Request:
    return Request(8443, host, path, sni=host, alpn="h2", headers={k.replace("_", "-"): v for k, v in headers.items()})


@pytest.mark.parametrize(
    ("request_", "destination"),
    [
        # terminated TLS, routed by host, path and header
        (https_request("shop.example.com"), SPLIT),
        (https_request("shop.example.com", "/beta", x_user="ann"), V2),
        (https_request("shop.example.com", "/beta", x_user="bob"), SPLIT),
        (https_request("shop.example.com", "/old"), "redirect"),
        (https_request("blog.example.com"), BLOG),
        (https_request("unknown.example.com"), "404"),
        (https_request("unknown.example.org"), "no chain"),
        # the port in the Host header is ignored
        (Request(8443, "blog.example.com:443", sni="blog.example.com", alpn="h2"), BLOG),
        # plaintext HTTP is redirected, for namespaced hosts only if the namespace has routes for them
        (Request(8080, "shop.example.com"), "redirect"),
        (Request(8080, "anything.example.com"), "404"),
        # port conditions
        (https_request("shop.example.com", "/only-other"), SPLIT),
        (Request(8081, "shop.example.com", "/only-other"), "direct"),
        # hosts of a server may be limited to namespaces
        (https_request("shop.example.com", "/stolen"), "direct"),
        (Request(8080, "shop.example.com", "/stolen"), "redirect"),
        # TLS passthrough
        (Request(8443, sni="raw.example.com", alpn="h2"), f"outbound|443||{SHOP}"),
        # TCP, in plaintext and after terminated TLS
        (Request(9000), f"outbound|9000||{SHOP}"),
        (Request(9443, sni="tcp.example.com"), f"outbound|9000||{SHOP}"),
        (Request(9443, sni="other.example.com"), "no chain"),
        # mesh TLS by the cluster in the SNI, only with an Istio ALPN
        (Request(15443, sni=f"outbound_.80_.v1_.{SHOP}", alpn="istio"), f"outbound_.80_.v1_.{SHOP}"),
        (Request(15443, sni=f"outbound_.80_.v1_.{SHOP}", alpn="h2"), "no chain"),
        (Request(15443, sni="outbound_.80_._.unknown.local", alpn="istio"), "no chain"),
        (Request(1234), "no listener"),
    ],
)
def test_routing(gateway: Envoy, request_: Request, destination: str) -> None:
    assert gateway.send(request_).destination == destination


def test_tls_termination(gateway: Envoy) -> None:
    assert gateway.send(https_request("blog.example.com")).terminated
    assert gateway.send(Request(9443, sni="tcp.example.com")).terminated
    assert not gateway.send(Request(8443, sni="raw.example.com", alpn="h2")).terminated


def test_unprivileged_pod_has_no_low_ports() -> None:
    low = GATEWAY.replace("number: 9000", "number: 900")
    assert envoy(SERVICES, low, ROUTES).send(Request(900)).destination == f"outbound|9000||{SHOP}"
    assert envoy(SERVICES, low, ROUTES, UNPRIVILEGED_POD="true").send(Request(900)).destination == "no listener"


def test_gateway_without_a_matching_selector() -> None:
    assert not envoy(SERVICES, GATEWAY.replace("istio: ingress", "istio: egress"), ROUTES).listeners


def test_gateway_without_routes() -> None:
    gateway_env = envoy(SERVICES, GATEWAY)
    assert gateway_env.send(https_request("shop.example.com")) == Outcome("404", "no route", True)
    assert gateway_env.send(Request(8080, "shop.example.com")).destination == "404"
    assert gateway_env.send(Request(9000)).destination == "no listener"
    assert gateway_env.send(Request(8081, "x")) == Outcome("404", "no route")


def test_conflicts_are_reported() -> None:
    world = World()
    younger_gateway = GATEWAY.replace("name: edge, namespace: edge", "name: young, namespace: shop")
    younger_rule = "---" + ROUTES.split("---")[-1].replace("name: raw", "name: raw-again")
    for text in (SERVICES, GATEWAY, ROUTES + younger_rule, younger_gateway):
        world.apply(text)
    node_id = world.connect(proxy("router", "edge-0", "edge", "10.1.0.8", {"istio": "ingress"}))
    problems = {(str(p.object), p.path) for p in router_problems(world.mesh, node_id)}
    assert ("networking.istio.io/Gateway shop/young", "spec.servers[2]") in problems
    assert ("networking.istio.io/VirtualService shop/raw-again", "spec.tls[0].match[0].sniHosts") in problems


def clusters(environ: dict[str, str]) -> set[str]:
    world = World(environ=environ)
    for text in (SERVICES, GATEWAY.replace("AUTO_PASSTHROUGH", "PASSTHROUGH"), ROUTES):
        world.apply(text)
    return set(
        world.resources(world.connect(proxy("router", "edge-0", "edge", "10.1.0.8", {"istio": "ingress"})))[CLUSTER]
    )


def test_filtered_gateway_clusters() -> None:
    all_clusters, routed = clusters({}), clusters({"PILOT_FILTER_GATEWAY_CLUSTER_CONFIG": "true"})
    assert all_clusters - routed == {f"outbound|{port}||edge.edge.svc.cluster.local" for port in (80, 443)}
    assert {BLOG, V2, "BlackHoleCluster"} <= routed <= all_clusters


def test_dual_stack_listener() -> None:
    world = World(environ={"ISTIO_DUAL_STACK": "true"})
    for text in (SERVICES, GATEWAY):
        world.apply(text)
    dual_stack_proxy = msgspec.structs.replace(
        proxy("router", "edge-0", "edge", "10.1.0.8", {"istio": "ingress"}), ips=("10.1.0.8", "fd00::8")
    )
    listeners = {x.name: x for x in Envoy(world.resources(world.connect(dual_stack_proxy))).listeners}
    assert [a.address.socket_address.address for a in listeners["0.0.0.0_8080"].additional_addresses] == ["::"]
