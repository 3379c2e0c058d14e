"""Requests through a stock Envoy as ingress gateway, with routes from configuration files."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from pilot.agent.envoy.envoy_bootstrap import ProxyNode
from testing.processes.process import ControlPlane, Envoy, eventually, free_port
from testing.servers.backends import Backend, HttpResponse, send_request

SERVICE = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: {name}, namespace: shop}}
spec:
  hosts: [{name}.shop.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{{number: 80, name: http, protocol: HTTP}}]
  endpoints:
"""
ENDPOINT = "  - {{address: 127.0.0.1, ports: {{http: {port}}}, labels: {{version: {version}}}}}\n"
GATEWAY = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: shop, namespace: shop}}
spec:
  selector: {{istio: ingressgateway}}
  servers:
  - port: {{number: {port}, name: http, protocol: HTTP}}
    hosts: ["*.example.com"]
"""
SUBSETS = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: reviews.shop.internal
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
"""
ROUTES = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {name}, namespace: shop}}
spec:
  hosts: [{name}.example.com]
  gateways: [shop]
  http:
"""


def routes(name: str, http: str) -> str:
    return ROUTES.format(name=name) + http


RULES = {
    "plain": "  - route: [{destination: {host: reviews.shop.internal, subset: v1}}]\n",
    "header": """
  - match: [{headers: {x-tester: {exact: "yes"}}}]
    route: [{destination: {host: reviews.shop.internal, subset: v2}}]
  - route: [{destination: {host: reviews.shop.internal, subset: v1}}]
""",
    "redirect": """
  - match: [{uri: {exact: /old}}]
    redirect: {uri: /new, authority: other.example.com, redirectCode: 302}
""",
    "rewrite": """
  - match: [{uri: {prefix: /api/}}]
    rewrite: {uri: /internal/, authority: rewritten.example.com}
    headers: {request: {set: {x-added: "1"}}, response: {add: {x-answered: "yes"}}}
    route: [{destination: {host: reviews.shop.internal, subset: v1}}]
""",
    "retry": """
  - retries: {attempts: 3, retryOn: "5xx", perTryTimeout: 2s, backoff: 25ms}
    route: [{destination: {host: reviews.shop.internal, subset: v1}}]
""",
    "timeout": """
  - timeout: 300ms
    route: [{destination: {host: reviews.shop.internal, subset: v1}}]
""",
    "fault": """
  - fault: {abort: {httpStatus: 418, percentage: {value: 100}}, delay: {fixedDelay: 10ms, percentage: {value: 100}}}
    route: [{destination: {host: reviews.shop.internal, subset: v1}}]
""",
    "mirror": """
  - route: [{destination: {host: reviews.shop.internal, subset: v1}}]
    mirror: {host: reviews.shop.internal, subset: v2}
    mirrorPercentage: {value: 100}
""",
    "split": """
  - route:
    - {destination: {host: reviews.shop.internal, subset: v1}, weight: 80}
    - {destination: {host: reviews.shop.internal, subset: v2}, weight: 20}
""",
    "direct": """
  - directResponse: {status: 503, body: {string: "closed today"}}
""",
}


class Shop:
    """Two backends of a service, a control plane with a configuration directory, and a gateway."""

    def __init__(self, work: pathlib.Path) -> None:
        self.v1, self.v2 = Backend("v1"), Backend("v2")
        self.config = work / "config"
        self.config.mkdir()
        self.ingress = ("127.0.0.1", free_port())
        endpoints = "".join(ENDPOINT.format(port=b.port, version=b.name) for b in (self.v1, self.v2))
        self.write("services", SERVICE.format(name="reviews") + endpoints + "---" + SUBSETS)
        self.write("gateway", GATEWAY.format(port=self.ingress[1]))
        for name, http in RULES.items():
            self.write(name, routes(name, http))
        self.pilot = ControlPlane(work, self.config, mesh_config="enableAutoMtls: false\n")
        self.pilot.wait_ready()
        node = ProxyNode(
            type="router", name="ingress", namespace="shop", ip="127.0.0.2", labels={"istio": "ingressgateway"}
        )
        self.envoy = Envoy(work, node, self.pilot.xds)

    def write(self, name: str, text: str) -> None:
        """Write a file and rename it into place, as editors do."""
        temporary = self.config / f".{name}.tmp"
        temporary.write_text(text)
        temporary.replace(self.config / f"{name}.yaml")

    def ask(self, rule: str, path: str = "/", **headers: str) -> HttpResponse:
        return send_request(
            self.ingress, path, host=f"{rule}.example.com", headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    def stop(self) -> None:
        self.envoy.stop()
        self.pilot.stop()
        self.v1.stop()
        self.v2.stop()


@pytest.fixture(scope="module")
def module_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    env = Shop(tmp_path_factory.mktemp("shop"))
    try:
        eventually(lambda: env.ask("plain").status == 200, 30, "the gateway answers")
        yield env
        assert env.envoy.rejected() == {}, env.envoy.tail()
        assert env.pilot.metric("pilot_total_xds_rejects") == 0
        assert env.pilot.metric("pilot_xds_pushes") > 0
    finally:
        env.stop()


@pytest.fixture
def shop(module_shop: Shop) -> Shop:
    module_shop.v1.reset()
    module_shop.v2.reset()
    return module_shop


def test_route_to_a_subset(shop: Shop) -> None:
    assert {shop.ask("plain").json["backend"] for _ in range(10)} == {"v1"}


def test_unknown_host(shop: Shop) -> None:
    assert shop.ask("unknown").status == 404


def test_header_match(shop: Shop) -> None:
    assert shop.ask("header", x_tester="yes").json["backend"] == "v2"
    assert shop.ask("header", x_tester="no").json["backend"] == "v1"


def test_redirect(shop: Shop) -> None:
    response = shop.ask("redirect", "/old")
    assert (response.status, response.headers["location"]) == (302, "http://other.example.com/new")
    assert shop.v1.requests == []


def test_rewrite_of_path_host_and_headers(shop: Shop) -> None:
    response = shop.ask("rewrite", "/api/books?page=2")
    assert response.headers["x-answered"] == "yes"
    received = shop.v1.requests[-1]
    assert (received.path, received.headers["host"], received.headers["x-added"]) == (
        "/internal/books?page=2",
        "rewritten.example.com",
        "1",
    )


def test_retries_hide_a_failing_backend(shop: Shop) -> None:
    shop.v1.fail = 2
    assert shop.ask("retry").status == 200
    assert len(shop.v1.requests) == 3


def test_retry_limit(shop: Shop) -> None:
    shop.v1.fail = 100
    assert shop.ask("retry").status == 503
    assert len(shop.v1.requests) == 4


def test_timeout(shop: Shop) -> None:
    shop.v1.delay = 1.5
    assert shop.ask("timeout").status == 504


def test_fault_injection(shop: Shop) -> None:
    response = shop.ask("fault")
    assert (response.status, response.text) == (418, "fault filter abort")
    assert shop.v1.requests == []


def test_mirror(shop: Shop) -> None:
    assert shop.ask("mirror", "/watched").json["backend"] == "v1"
    copy = eventually(
        lambda: next((r for r in shop.v2.requests if r.path == "/watched"), None), 5, "the mirrored request"
    )
    assert copy.headers["host"].startswith("mirror.example.com")


def test_weighted_split(shop: Shop) -> None:
    backends = [shop.ask("split").json["backend"] for _ in range(300)]
    assert 20 <= backends.count("v2") <= 110  # 60 on average; less than a one in a million chance outside
    assert backends.count("v1") + backends.count("v2") == 300


def test_direct_response(shop: Shop) -> None:
    response = shop.ask("direct")
    assert (response.status, response.text) == (503, "closed today")


def test_edit_takes_effect(shop: Shop) -> None:
    v2_route = "  - route: [{destination: {host: reviews.shop.internal, subset: v2}}]\n"
    for http, backend in ((v2_route, "v2"), (RULES["plain"], "v1")):
        shop.write("plain", routes("plain", http))
        eventually(
            lambda backend=backend: shop.ask("plain").json["backend"] == backend, 10, f"requests go to {backend}"
        )


def test_invalid_file_keeps_its_last_valid_objects(shop: Shop) -> None:
    shop.write("header", routes("header", "  - route: [{destination: {host: reviews.shop"))
    shop.write("late", routes("late", RULES["plain"]))
    eventually(lambda: shop.ask("late").status == 200, 10, "the other file is loaded")
    assert shop.ask("header", x_tester="yes").json["backend"] == "v2"
    assert "header.yaml" in shop.pilot.log.read_text()
    shop.write("header", routes("header", RULES["header"]))


def test_added_and_removed_service(shop: Shop) -> None:
    third = Backend("v3")
    try:
        shop.write("third", SERVICE.format(name="third") + ENDPOINT.format(port=third.port, version="v3"))
        shop.write("third-route", routes("third", "  - route: [{destination: {host: third.shop.internal}}]\n"))
        eventually(lambda: shop.ask("third").json["backend"] == "v3", 10, "the new service answers")
        (shop.config / "third-route.yaml").unlink()
        (shop.config / "third.yaml").unlink()
        eventually(lambda: shop.ask("third").status == 404, 10, "its route is removed")
    finally:
        third.stop()
