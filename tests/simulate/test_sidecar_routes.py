"""Routing of requests from a workload with a sidecar."""

from __future__ import annotations

import pytest

from pilot.mesh.model.proxy import Proxy
from testing.mesh.traffic import Request
from testing.mesh.world import World, proxy
from tests.simulate.envoy import Envoy

OBJECTS = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}, {name: http-admin, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: bank, namespace: money}
spec: {clusterIP: 10.96.0.3, ports: [{name: grpc, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: store, namespace: shop}
spec: {type: ExternalName, externalName: web.shop.svc.cluster.local, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: disks, namespace: shop}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: guess, namespace: shop}
spec: {clusterIP: 10.96.0.9, ports: [{port: 7000}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ext, namespace: shop}
spec:
  hosts: [api.example.com, "*.wild.example.com"]
  addresses: [10.50.0.1]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: NONE
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cart, namespace: shop}
spec: {host: cart, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: cart, namespace: shop}
spec:
  hosts: [cart, basket.example.com]
  http:
    - {match: [{uri: {prefix: /v2}, method: {exact: POST}}], route: [{destination: {host: cart, subset: v2}}]}
    - match: [{headers: {x-user: {regex: "a.*"}}}, {withoutHeaders: {x-old: {}}, queryParams: {new: {exact: "1"}}}]
      route: [{destination: {host: cart, subset: v2}}]
    - {match: [{sourceNamespace: money}], redirect: {uri: /money}}
    - {match: [{sourceLabels: {app: probe}}], directResponse: {status: 418}}
    - {match: [{uri: {exact: /CASE}, ignoreUriCase: true}], directResponse: {status: 200}}
    - match: [{uri: {prefix: /split}}]
      route: [{destination: {host: cart, subset: v1}, weight: 90}, {destination: {host: cart, subset: v2}, weight: 10}]
    - {match: [{uri: {prefix: /team}}], delegate: {name: team, namespace: money}}
    - {route: [{destination: {host: cart, subset: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: team, namespace: money}
spec:
  http:
    - {match: [{uri: {prefix: /team/bank}}], route: [{destination: {host: bank}}]}
    - {match: [{uri: {prefix: /elsewhere}}], route: [{destination: {host: bank}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: wild, namespace: money}
spec:
  hosts: ["*.wild.example.com"]
  http: [{route: [{destination: {host: bank}}]}]
"""
SHOPPER = proxy("sidecar", "shopper-0", "shop", "10.1.0.1", {"app": "shopper"})
PROBE = proxy("sidecar", "probe-0", "shop", "10.1.0.2", {"app": "probe"})
BANKER = proxy("sidecar", "banker-0", "money", "10.1.0.3", {"app": "banker"})

WEB, CART, BANK = (f"outbound|80||{name}.svc.cluster.local" for name in ("web.shop", "cart.shop", "bank.money"))
CART_V1, CART_V2 = (f"outbound|80|{v}|cart.shop.svc.cluster.local" for v in ("v1", "v2"))
ANY = "PassthroughCluster"


def request(host: str, path: str = "/", port: int = 80, method: str = "GET", **headers: str) -> Request:
    return Request(
        port=port,
        host=host,
        path=path,
        alpn="http/1.1",
        method=method,
        headers={k.replace("_", "-"): v for k, v in headers.items()},
    )


def destination_of(client: Proxy, call: Request, extra: str = "", address: str = "0.0.0.0") -> str:
    world = World()
    world.apply(OBJECTS + extra)
    outcome = Envoy(world.resources(world.connect(client))).send(call, address)
    assert not world.failures
    return (
        f"{outcome.destination} {outcome.detail}"
        if outcome.destination in ("redirect", "direct")
        else outcome.destination
    )


FULL = "web.shop.svc.cluster.local"


@pytest.mark.parametrize("host", ["web", "web.shop", "web.shop.svc", FULL, f"{FULL}.", "10.96.0.1", "web:80"])
def test_every_name_of_a_service(host: str) -> None:
    assert destination_of(SHOPPER, request(host)) == WEB


@pytest.mark.parametrize(
    ("host", "cluster"),
    [("bank", ANY), *((h, BANK) for h in ("bank.money", "bank.money.svc", "10.96.0.3", "BANK.money"))],
)
def test_short_names_are_in_the_local_namespace(host: str, cluster: str) -> None:
    assert destination_of(SHOPPER, request(host)) == cluster
    assert destination_of(BANKER, request("bank")) == BANK


@pytest.mark.parametrize(
    ("host", "port", "cluster"),
    [
        ("web", 8080, "outbound|8080||web.shop.svc.cluster.local"),
        ("cart", 8080, ANY),
        ("store", 80, WEB),
        ("store.shop", 80, WEB),
        ("disks", 80, "outbound|80||disks.shop.svc.cluster.local"),
        ("disk-0.disks", 80, "outbound|80||disks.shop.svc.cluster.local"),
        ("disk-0.disks.shop.svc.cluster.local", 80, "outbound|80||disks.shop.svc.cluster.local"),
        ("api.example.com", 80, "outbound|80||api.example.com"),
        ("a.wild.example.com", 80, BANK),
        ("www.example.com", 80, ANY),
    ],
)
def test_hosts_and_ports(host: str, port: int, cluster: str) -> None:
    assert destination_of(SHOPPER, request(host, port=port)) == cluster


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (request("cart"), CART_V1),
        (request("basket.example.com"), CART_V1),
        (request("cart", "/v2/x", method="POST"), CART_V2),
        (request("cart", "/v2/x"), CART_V1),
        (request("cart", x_user="alice"), CART_V2),
        (request("cart", x_user="bob"), CART_V1),
        (request("cart", "/?new=1"), CART_V2),
        (request("cart", "/?new=1", x_old="y"), CART_V1),
        (request("cart", "/case"), "direct 200"),
        (request("cart", "/split"), f"90% {CART_V1}, 10% {CART_V2}"),
        (request("cart", "/team/bank/1"), BANK),
        (request("cart", "/team/other"), CART_V1),
        (request("cart", "/elsewhere"), CART_V1),
    ],
)
def test_rules_in_order(call: Request, expected: str) -> None:
    assert destination_of(SHOPPER, call) == expected


TCP_ONLY = """
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: every, namespace: shop}
spec: {hosts: ["*.shop.svc.cluster.local"], http: [{route: [{destination: {host: bank.money.svc.cluster.local}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], tcp: [{match: [{port: 9000}], route: [{destination: {host: cart}}]}]}
"""


@pytest.mark.parametrize(("host", "cluster"), [("web", WEB), ("disks", BANK)])
def test_wildcard_does_not_apply_to_a_host_that_another_rule_routes_for_tcp_only(host: str, cluster: str) -> None:
    assert destination_of(SHOPPER, request(host), TCP_ONLY) == cluster


def test_rules_by_source() -> None:
    call = request("cart.shop")
    assert destination_of(SHOPPER, call) == CART_V1
    assert destination_of(PROBE, call) == "direct 418"
    assert destination_of(BANKER, call) == "redirect /money"


@pytest.mark.parametrize("host", ["guess", "anything", "10.96.0.9"])
def test_dedicated_listener_ignores_the_host(host: str) -> None:
    assert (
        destination_of(SHOPPER, request(host, port=7000), address="10.96.0.9")
        == "outbound|7000||guess.shop.svc.cluster.local"
    )


SIDECAR = """
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: default, namespace: shop}}
spec: {{{spec}}}
"""


@pytest.mark.parametrize(
    ("spec", "host", "expected"),
    [
        ("egress: [{hosts: ['./*']}]", "web", WEB),
        ("egress: [{hosts: ['./*']}]", "bank.money", ANY),
        ("egress: [{hosts: ['./*']}]", "cart", CART_V1),
        ("egress: [{hosts: ['money/*']}]", "web", ANY),
        ("egress: [{hosts: ['money/*']}]", "bank.money", BANK),
        ("egress: [{hosts: ['*/*', '~shop/web.shop.svc.cluster.local']}]", "web", ANY),
        ("egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "www.example.com", "direct 502"),
        (
            "egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: out.example.com, port: {number: 8080}}}",
            "www.example.com",
            "outbound|8080||out.example.com",
        ),
        (
            "egress: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['money/*']}, {hosts: ['*/*']}]",
            "web",
            ANY,
        ),
        (
            "egress: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['money/*']}, {hosts: ['*/*']}]",
            "bank.money",
            BANK,
        ),
    ],
)
def test_sidecar_egress(spec: str, host: str, expected: str) -> None:
    assert destination_of(SHOPPER, request(host), SIDECAR.format(spec=spec)) == expected


def test_sidecar_http_proxy_port() -> None:
    spec = "egress: [{port: {number: 9999, name: proxy, protocol: HTTP_PROXY}, bind: 127.0.0.1, captureMode: NONE, hosts: ['*/*']}]"
    extra = SIDECAR.format(spec=spec)
    assert destination_of(SHOPPER, request("web", port=9999), extra, "127.0.0.1") == WEB
    assert destination_of(SHOPPER, request("bank.money", port=9999), extra, "127.0.0.1") == BANK


def test_oldest_virtual_service_wins() -> None:
    extra = """
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: older, namespace: shop, creationTimestamp: "2025-01-01T00:00:00Z"}
spec: {hosts: [web], http: [{match: [{port: 8080}], directResponse: {status: 201}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: younger, namespace: shop, creationTimestamp: "2025-01-02T00:00:00Z"}
spec: {hosts: [web], http: [{directResponse: {status: 202}}]}
"""
    assert destination_of(SHOPPER, request("web", port=8080), extra) == "direct 201"
    assert destination_of(SHOPPER, request("web"), extra) == "direct 202"
