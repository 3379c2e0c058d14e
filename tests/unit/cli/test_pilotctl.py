"""Exact output of pilotctl, from the responses of a small server."""

from __future__ import annotations

import base64
import http.server
import json
import os
import re
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from ca.csr import decode_csr
from ca.pem import certificate_pem
from pilot.cli.ctl.client import PageClient
from pilot.cli.ctl.tables import secrets
from pilot.cli.pilotctl import main, pilotctl
from pilot.lib.build_info import VERSION_HEADER
from pilot.lib.xds_types import BY_SHORT_NAME
from testing.security import certificates

ROOT = certificates.root()
LEAF = ROOT.issue(
    decode_csr(certificates.csr()), [certificates.IDENTITY, "tea.example"], certificates.DAY, certificates.NOW
)
SECRETS = [
    {
        "name": "kubernetes://tea-cacert",
        "validationContext": {"trustedCa": {"inlineBytes": base64.b64encode(ROOT.roots_pem).decode()}},
    },
    {
        "name": "kubernetes://tea",
        "tlsCertificate": {"certificateChain": {"inlineString": certificate_pem(LEAF).decode()}},
    },
    {"name": "kubernetes://broken", "tlsCertificate": {"certificateChain": {"inlineString": "no"}}},
]
HEADING = "Proxy tea-1.shop in cluster Kubernetes"
NOT_CONNECTED = "Proxy not connected to this Pilot instance. It may be connected to another instance.\n"
NO_ENVOY = (
    "Without the workload's certificate, which only Envoy and its agent have: cannot reach the Envoy of tea-1.shop: it is "
    "on another machine, and it does not name its Pod; use --envoy URL"
)
TEA = "outbound|80||tea.shop.svc.cluster.local"
ISTIO = "/apis/networking.istio.io/v1/namespaces"


def by_config(kind: str, name: str) -> dict[str, Any]:
    return {"filterMetadata": {"istio": {"config": f"{ISTIO}/shop/{kind}/{name}"}}}


def socket(address: str, port: int) -> dict[str, Any]:
    return {"socketAddress": {"address": address, "portValue": port}}


def network_filter(kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": f"envoy.filters.network.{kind.lower()}",
        "typedConfig": {"@type": f"type.googleapis.com/x.{kind}", **fields},
    }


INLINE = {"virtualHosts": [{"routes": [{"route": {"cluster": "inbound|8080||"}}]}]}
CLUSTERS = [
    {"name": TEA, "type": "EDS", "metadata": by_config("destination-rule", "tea")},
    {
        "name": "outbound|80|v1|tea.shop.svc.cluster.local",
        "type": "EDS",
        "metadata": by_config("destination-rule", "tea"),
    },
    {"name": "outbound|443||api.example.com", "type": "STRICT_DNS"},
    {"name": "inbound|8080||", "type": "ORIGINAL_DST"},
    {"name": "BlackHoleCluster"},
    {"name": "outbound|80||*.example.org", "clusterType": {"name": "envoy.clusters.dynamic_forward_proxy"}},
]
LISTENERS = [
    {
        "name": "virtualOutbound",
        "address": socket("0.0.0.0", 15001),
        "filterChains": [
            {
                "filterChainMatch": {"destinationPort": 15001},
                "filters": [network_filter("TcpProxy", cluster="BlackHoleCluster")],
            }
        ],
        "defaultFilterChain": {"filters": [network_filter("TcpProxy", cluster="PassthroughCluster")]},
    },
    {
        "name": "0.0.0.0_443",
        "address": socket("0.0.0.0", 443),
        "additionalAddresses": [{"address": socket("::", 443)}],
        "filterChains": [
            {
                "filterChainMatch": {
                    "serverNames": ["a.example.com"],
                    "prefixRanges": [{"addressPrefix": "10.0.0.0", "prefixLen": 8}],
                },
                "filters": [
                    network_filter("Other"),
                    network_filter(
                        "TcpProxy",
                        weightedClusters={"clusters": [{"name": TEA, "weight": 90}, {"name": "x", "weight": 10}]},
                    ),
                ],
            }
        ],
    },
    {
        "name": "0.0.0.0_80",
        "address": socket("0.0.0.0", 80),
        "filterChains": [
            {
                "filterChainMatch": {"transportProtocol": "raw_buffer", "applicationProtocols": ["http/1.1", "h2c"]},
                "filters": [network_filter("HttpConnectionManager", rds={"routeConfigName": "80"})],
            }
        ],
    },
    {
        "name": "inbound",
        "address": {"pipe": {"path": "/run/in"}},
        "filterChains": [
            {"filters": [network_filter("HttpConnectionManager", routeConfig=INLINE)]},
            {
                "filterChainMatch": {"prefixRanges": [{"addressPrefix": "fd00::1", "prefixLen": 128}]},
                "filters": [{"name": "envoy.filters.network.echo"}],
            },
        ],
    },
]
MATCH = {
    "prefix": "/",
    "headers": [
        {"name": ":method", "stringMatch": {"exact": "GET"}},
        {"name": "x-user", "stringMatch": {"safeRegex": {"regex": "j.*"}}, "invertMatch": True},
        {"name": "x-any", "presentMatch": True},
    ],
    "queryParameters": [{"name": "debug", "stringMatch": {"prefix": "on"}}],
}
ROUTES = [
    {"name": "http.8080", "virtualHosts": [{"name": "empty", "domains": ["*"]}]},
    {
        "name": "80",
        "virtualHosts": [
            {
                "name": "tea.shop.svc.cluster.local:80",
                "domains": ["tea", "tea.shop", "tea.shop.svc"],
                "routes": [
                    {"match": MATCH, "route": {"cluster": TEA}, "metadata": by_config("virtual-service", "tea")},
                    {
                        "match": {"path": "/old"},
                        "redirect": {"httpsRedirect": True, "hostRedirect": "new.example.com", "pathRedirect": "/new"},
                    },
                    {"match": {"safeRegex": {"regex": "/[a-z]+"}}, "directResponse": {"status": 503}},
                    {
                        "match": {"pathSeparatedPrefix": "/v1"},
                        "route": {"weightedClusters": {"clusters": [{"name": TEA, "weight": 90}, {"name": "x"}]}},
                    },
                    {"match": {"prefix": "/pick"}, "route": {"clusterHeader": "x-cluster"}},
                ],
            }
        ],
    },
]
ENDPOINTS = [
    {
        "clusterName": TEA,
        "endpoints": [
            {
                "locality": {"region": "eu", "zone": "eu-1"},
                "lbEndpoints": [
                    {"endpoint": {"address": socket("10.0.0.1", 8080)}, "loadBalancingWeight": 3},
                    {"endpoint": {"address": socket("fd00::2", 8080)}, "healthStatus": "UNHEALTHY"},
                ],
            },
            {"priority": 1, "lbEndpoints": [{"endpoint": {"address": {"pipe": {"path": "/run/tea"}}}}]},
        ],
    },
    {
        "clusterName": "a",
        "endpoints": [
            {"lbEndpoints": [{"endpoint": {"address": {"envoyInternalAddress": {"serverListenerName": "x"}}}}]}
        ],
    },
]
DUMPS = {"sds": SECRETS, "cds": CLUSTERS, "lds": LISTENERS, "rds": ROUTES, "eds": ENDPOINTS}
SYNCZ = [
    {
        "cluster_id": "Kubernetes",
        "proxy": "tea-1.shop",
        "proxy_type": "sidecar",
        "istio_version": "1.32.0",
        "resources": {
            BY_SHORT_NAME["cds"]: {"sent": "a", "acked": "a"},
            BY_SHORT_NAME["lds"]: {"sent": "b", "acked": "a", "lastError": "no such filter"},
            BY_SHORT_NAME["eds"]: {"sent": "b", "acked": "a"},
            BY_SHORT_NAME["rds"]: {},
        },
    },
    {"cluster_id": "Kubernetes", "proxy": "gate.edge", "proxy_type": "router"},
]
EXPLANATION = {
    "proxy": "tea-1.shop",
    "resource": TEA,
    "explanations": [
        {
            "type": "cds",
            "objects": [
                {
                    "kind": "Service",
                    "namespace": "shop",
                    "name": "tea",
                    "through": ["outbound_cluster", "service"],
                    "via": ["clusters", "services and endpoints"],
                    "file": "/mesh/tea.yaml",
                    "line": 4,
                },
                {"kind": "MeshConfig", "name": "mesh", "through": ["outbound_cluster"], "via": []},
            ],
            "lists": ["rules"],
            "searched": ["DestinationRules of the host"],
            "proxy": [
                {"kind": "Pod", "namespace": "shop", "name": "tea-1", "through": []},
                {"kind": "Node", "name": "node-1", "through": []},
            ],
        },
        {"type": "eds", "objects": [], "lists": []},
    ],
}
PROBLEMS: list[dict[str, Any]] = [
    {
        "severity": "error",
        "code": "bad-regex",
        "group": "networking.istio.io",
        "kind": "VirtualService",
        "namespace": "shop",
        "name": "tea",
        "path": "spec.http[0]",
        "file": "a.yaml",
        "line": 7,
        "message": "missing )",
    },
    {"severity": "warning", "code": "unknown-kind", "message": "what is this?", "file": "b.yaml"},
]


class Pages(http.server.BaseHTTPRequestHandler):
    """Responses of the debug pages. `empty` servers have no proxies."""

    empty = False

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        page = url.path.removeprefix("/debug/")
        if url.path == "/config_dump":  # Envoy uses snake case
            entry = {
                "name": "default",
                "secret": {"tls_certificate": {"certificate_chain": SECRETS[1]["tlsCertificate"]["certificateChain"]}},
            }
            dump = {"@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump", "dynamic_active_secrets": [entry]}
            return self.respond(200, json.dumps({"configs": [] if self.empty else [dump]}).encode())
        if "proxyID" in query and query["proxyID"] not in "tea-1.shop-3":
            return self.respond(404, NOT_CONNECTED.encode())
        if query.get("resource", TEA) != TEA:
            return self.respond(404, b"tea-1.shop has no resource 'x'\n")
        pages: dict[str, Any] = {
            "connections": {"totalClients": 1, "clients": [{"connectionId": "tea-1.shop-3"}]}
            if not self.empty
            else {"totalClients": 0},
            "syncz": SYNCZ[:1] if "proxyID" in query else [] if self.empty else SYNCZ,
            "config_dump": {"configs": DUMPS[query["types"]]} if "types" in query and not self.empty else {},
            "explain": EXPLANATION,
            "adsz": {"clients": [{"connectionId": "tea-1.shop-3", "address": "10.0.0.9:1"}]},
            "problemz": [] if self.empty or query.get("namespace") == "calm" else PROBLEMS,
        }
        return self.respond(200, json.dumps(pages[page]).encode())

    def respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header(VERSION_HEADER, "1.0.0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class EmptyPages(Pages):
    empty = True


class ClosedPages(Pages):
    def do_GET(self) -> None:
        self.respond(401, b"")


def serve(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    yield from serve(Pages)


@pytest.fixture(scope="module")
def empty() -> Iterator[str]:
    yield from serve(EmptyPages)


@pytest.fixture(scope="module")
def closed() -> Iterator[str]:
    yield from serve(ClosedPages)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(address: str, *words: str) -> str:
        assert main(["--address", address, *words]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def fail(capsys: pytest.CaptureFixture[str]) -> Any:
    def fail(address: str, *words: str) -> str:
        assert main(["--address", address, *words]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err.replace(address, "HERE")

    return fail


def test_proxy_status(run: Any, address: str) -> None:
    assert run(address, "proxy-status") == (
        "NAME         CLUSTER      TYPE      CDS      LDS     EDS     RDS        VERSION\n"
        "tea-1.shop   Kubernetes   sidecar   SYNCED   ERROR   STALE   NOT SENT   1.32.0\n"
        "gate.edge    Kubernetes   router    -        -       -       -\n"
        "tea-1.shop rejected LDS: no such filter\n"
        "tea-1.shop has not acknowledged EDS\n"
        "gate.edge is connected, but has not requested any configuration\n"
        "2 proxies: 1 ERROR, 1 NOTHING REQUESTED\n"
    )


def test_proxy_status_without_proxies(run: Any, empty: str) -> None:
    assert run(empty, "ps") == f"No proxy is connected to http://{empty}.\n"


def test_clusters(run: Any, address: str) -> None:
    assert [line.split() for line in run(address, "proxy-config", "clusters", "tea").splitlines()[1:]] == [
        ["SERVICE", "FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION", "RULE", "NAME"],
        ["-", "8080", "-", "inbound", "ORIGINAL_DST", "-", "inbound|8080||"],
        [
            "*.example.org",
            "80",
            "-",
            "outbound",
            "envoy.clusters.dynamic_forward_proxy",
            "-",
            "outbound|80||*.example.org",
        ],
        ["BlackHoleCluster", "-", "-", "-", "STATIC", "-", "BlackHoleCluster"],
        ["api.example.com", "443", "-", "outbound", "STRICT_DNS", "-", "outbound|443||api.example.com"],
        ["tea.shop.svc.cluster.local", "80", "-", "outbound", "EDS", "tea.shop", TEA],
        ["tea.shop.svc.cluster.local", "80", "v1", "outbound", "EDS", "tea.shop", TEA.replace("||", "|v1|")],
    ]


def test_listeners(run: Any, address: str) -> None:
    note, *table = run(address, "pc", "listener", "tea").splitlines()[1:]
    assert note == "Sent at an unknown time; REJECTED by the proxy, so not in force: no such filter"
    assert table == [
        "ADDRESSES        PORT    MATCH                                     DESTINATION                              NAME",
        "unix:///run/in   -       all                                       HTTP to inbound|8080||                   inbound",
        "unix:///run/in   -       address fd00::1                           envoy.filters.network.echo               inbound",
        "0.0.0.0          80      transport raw_buffer; ALPN http/1.1,h2c   route 80                                 0.0.0.0_80",
        "0.0.0.0, ::      443     address 10.0.0.0/8; SNI a.example.com     tea.shop.svc.cluster.local:80 90, x 10   0.0.0.0_443",
        "0.0.0.0          15001   port 15001                                BlackHoleCluster                         virtualOutbound",
        "0.0.0.0          15001   all                                       PassthroughCluster                       virtualOutbound",
    ]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("c", "--fqdn", "example"), ["outbound|80||*.example.org", "outbound|443||api.example.com"]),
        (("clusters", "--fqdn", "Hole"), ["BlackHoleCluster"]),
        (("clusters", "--port", "443"), ["outbound|443||api.example.com"]),
        (("clusters", "--direction", "inbound"), ["inbound|8080||"]),
        (("clusters", "--fqdn", "tea.shop", "--subset", "v"), [TEA.replace("||", "|v1|")]),
        (
            ("clusters", "--port", "81"),
            ["None of the 6 clusters matches --port 81; known: 443, 80, 8080"],
        ),
        (
            ("clusters", "--fqdn", "teaa.shop.svc.cluster.local", "--port", "80"),
            [
                "None of the 6 clusters matches --fqdn teaa.shop.svc.cluster.local --port 80; did you mean "
                "tea.shop.svc.cluster.local?; known: *.example.org, api.example.com, tea.shop.svc.cluster.local"
            ],
        ),
        (("l", "--port", "443"), ["0.0.0.0_443"]),
        (
            ("l", "--port", "44"),
            ["None of the 4 listeners matches --port 44; did you mean 443?; known: 15001, 443, 80"],
        ),
        (
            ("l", "--address", "10.0.0.9"),
            ["None of the 4 listeners matches --address 10.0.0.9; known: 0.0.0.0, ::, unix:///run/in"],
        ),
        (("ep", "--port", "80"), ["None of the 2 endpoints matches --port 80; known: 8080"]),
        (
            ("routes", "--fqdn", "cup.shop"),
            ["None of the 2 routes matches --fqdn cup.shop; known: *, tea, tea.shop, tea.shop.svc"],
        ),
        (("listeners", "--address", "::"), ["0.0.0.0_443"]),
        (("listeners", "--name", "virtualOutbound"), ["virtualOutbound", "virtualOutbound"]),
        (("ep", "--cluster", TEA, "--status", "unhealthy"), [TEA]),
        (("endpoints", "--address", "10.0.0.1"), [TEA]),
        (("endpoints", "--port", "8080"), [TEA, TEA]),
        (("endpoints", "--cluster", "a"), ["a"]),
    ],
)
def test_filters(run: Any, address: str, words: tuple[str, ...], names: list[str]) -> None:
    output = run(address, "proxy-config", *words, "tea").splitlines()[1:]
    lines = [line for line in output if not line.startswith("Sent at ")]
    assert [line.split("  ")[-1].strip() for line in (lines[1:] if len(lines) > 1 else lines)] == names


def test_filters_apply_to_json(run: Any, address: str) -> None:
    clusters = json.loads(run(address, "pc", "clusters", "tea", "--port", "443", "-o", "json"))
    assert [cluster["name"] for cluster in clusters] == ["outbound|443||api.example.com"]
    (assignment,) = json.loads(run(address, "pc", "ep", "tea", "--address", "10.0.0.1", "-o", "json"))
    assert [len(group["lbEndpoints"]) for group in assignment["endpoints"]] == [1]
    (routes,) = json.loads(run(address, "pc", "routes", "tea", "--name", "80", "-o", "json"))
    assert routes["name"] == "80"


def test_address_filter_rejects_the_address_of_a_control_plane(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pc", "endpoints", "tea", "--address", "127.0.0.1:15014"]) == 2
    assert "pilotctl --address 127.0.0.1:15014 proxy-config" in capsys.readouterr().err


def test_routes(run: Any, address: str) -> None:
    rows = [line.split("   ") for line in run(address, "proxy-config", "routes", "tea").splitlines()[1:]]
    cells = [[cell.strip() for cell in row if cell.strip() not in ("", "-")] for row in rows]
    host = ["80", "tea.shop.svc.cluster.local:80", "tea, tea.shop + 1 more"]
    tea = "tea.shop.svc.cluster.local:80"
    assert cells == [
        ["NAME", "VHOST NAME", "DOMAINS", "MATCH", "DESTINATION", "VIRTUAL SERVICE", "TIMEOUT", "RETRIES", "FAULT"],
        [*host, "/* method=GET !x-user=~j.* x-any ?debug=^on", tea, "tea.shop"],
        [*host, "/old", "redirect https://new.example.com/new"],
        [*host, "~/[a-z]+", "direct response 503"],
        [*host, "/v1/*", f"{tea} 90, x 0"],
        [*host, "/pick*", "by header x-cluster"],
        ["http.8080", "empty", "*", "404"],
    ]


def test_endpoints(run: Any, address: str) -> None:
    assert run(address, "proxy-config", "endpoints", "tea") == (
        f"{HEADING}\nSent at an unknown time; not acknowledged, so it may not be in force\n"
        "ENDPOINT          STATUS      WEIGHT   LOCALITY         CLUSTER\n"
        "internal x        HEALTHY     1        -                a\n"
        f"10.0.0.1:8080     HEALTHY     3        eu/eu-1          {TEA}\n"
        f"[fd00::2]:8080    UNHEALTHY   1        eu/eu-1          {TEA}\n"
        f"unix:///run/tea   HEALTHY     1        - (priority 1)   {TEA}\n"
    )


def test_proxy_without_resources(run: Any, empty: str) -> None:
    nothing = "This proxy has subscribed to routes, and the control plane has none for it."
    assert run(empty, "proxy-config", "routes", "tea") == f"{HEADING}\n{nothing}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("proxy-status",), SYNCZ),
        (("proxy-config", "clusters", "tea"), CLUSTERS),
        (("explain", "tea", TEA), EXPLANATION),
        (("problems",), [PROBLEMS[0] | {"istioCode": "IST0122"}, PROBLEMS[1]]),
    ],
)
def test_json_and_yaml(run: Any, address: str, words: tuple[str, ...], expected: Any) -> None:
    assert json.loads(run(address, *words, "-o", "json")) == expected
    assert yaml.safe_load(run(address, *words, "-o", "yaml")) == expected


def test_secrets(run: Any, address: str) -> None:
    _, note, head, *rows = run(address, "proxy-config", "secret", "tea").splitlines()
    assert note == NO_ENVOY
    assert head.split("   ")[0] == "NAME"
    cells = [[cell.strip() for cell in re.split(r"\s{3,}", line)] for line in rows]
    serials = [f"{c.serial_number:x}" for c in (LEAF, ROOT.certificate)]
    not_before = LEAF.not_valid_before_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert cells == [
        ["kubernetes://broken", "Cert Chain", "ACTIVE", "no", "-", "-", "-", "contains no certificate"],
        [
            "kubernetes://tea",
            "Cert Chain",
            "ACTIVE",
            cells[1][3],
            serials[0],
            "2026-01-03T03:04:05Z",
            not_before,
            f"{certificates.IDENTITY},tea.example",
        ],
        [
            "kubernetes://tea-cacert",
            "CA",
            "ACTIVE",
            cells[2][3],
            serials[1],
            "2026-04-12T03:04:05Z",
            not_before,
            "O=domain-0",
        ],
    ]


@pytest.mark.parametrize(("days", "valid"), [(-1, "not yet"), (0, "yes"), (2, "no")])
def test_certificate_validity(days: int, valid: str) -> None:
    assert secrets.rows(SECRETS[1:2], certificates.NOW + days * certificates.DAY)[0][3] == valid


def test_secrets_of_an_envoy(run: Any, address: str) -> None:
    assert "default" in run(address, "proxy-config", "secrets", "--envoy", address)
    secret_list = json.loads(run(address, "proxy-config", "secrets", "--envoy", f"http://{address}/", "-o", "json"))
    assert [secret["name"] for secret in secret_list] == ["default"]


def test_missing_secrets(run: Any, fail: Any, empty: str) -> None:
    assert fail(empty, "proxy-config", "secrets", "tea") == (
        f"Error: the control plane has sent this proxy no secrets. {NO_ENVOY}. To list the certificates that the control "
        "plane knows, use `pilotctl certificates`\n"
    )
    nothing = "An Envoy that does not report its node ID\nThis Envoy has no secrets.\n"
    assert run(empty, "proxy-config", "secrets", "--envoy", empty) == nothing
    assert "cannot reach the Envoy at http://127.0.0.1:1: " in fail(
        empty, "proxy-config", "secrets", "--envoy", "127.0.0.1:1"
    )


def test_explain(run: Any, address: str) -> None:
    assert run(address, "explain", "tea", TEA) == (
        f"{TEA} (cds) of tea-1.shop was built from\n"
        "KIND         NAME       FILE:LINE\n"
        "Service      shop/tea   /mesh/tea.yaml:4\n"
        "MeshConfig   mesh       -\n"
        "\n"
        f"{TEA} (eds) of tea-1.shop was built from\n"
        "no configuration objects.\n"
    )


@pytest.mark.parametrize("words", [("explain", "tea", TEA), ("pc", "routes", "tea"), ("proxy-status", "tea")])
def test_namespace_of_a_proxy_is_requested(run: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    queries: list[dict[str, str]] = []
    answers: dict[str, Any] = {"explain": EXPLANATION, "syncz": SYNCZ, "config_dump": {}}
    answers["describe"] = {"rejections": []}
    monkeypatch.setattr(PageClient, "get", lambda _, page, **query: queries.append(query) or answers[page])
    run("127.0.0.1:1", *words, "-n", "shop")
    assert {(q["proxyID"], q["namespace"]) for q in queries if q["proxyID"] != "tea-1.shop"} == {("tea", "shop")}


def test_verbose_explanation_has_the_topics_between_object_and_resource(run: Any, address: str) -> None:
    assert run(address, "explain", "-v", "tea", TEA).splitlines()[1:6] == [
        "KIND         NAME       FILE:LINE          THROUGH",
        "Service      shop/tea   /mesh/tea.yaml:4   clusters < services and endpoints",
        "MeshConfig   mesh       -                  -",
        "and was looked up in: DestinationRules of the host",
        "proxy attributes come from: Pod shop/tea-1, Node node-1",
    ]


def test_problems(run: Any, address: str) -> None:
    assert run(address, "problems") == (
        "Error [IST0122 bad-regex] (VirtualService shop/tea a.yaml:7) spec.http[0]: missing )\n"
        "Warning [unknown-kind] (b.yaml) what is this?\n"
        "1 error, 1 warning.\n"
    )
    assert run(address, "problems", "-n", "calm") == (
        "No problems in the namespace calm; pilotctl problems lists those of all; namespaces with proxies: shop.\n"
    )


def test_explanation_with_swapped_arguments(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--address", address, "explain", "http.80", "tea"]) == 2
    assert "Error: PROXY comes first: use pilotctl explain tea http.80\n" in capsys.readouterr().err


def test_unknown_proxy(fail: Any, address: str, empty: str) -> None:
    sentence = "Error: no connected proxy matches 'milk' at http://HERE"
    assert fail(address, "proxy-config", "routes", "milk") == (
        f"{sentence}; connected proxies: tea-1.shop; pilotctl check-inject POD.NAMESPACE shows whether the Pod is injected, "
        "and --address selects another control plane\n"
    )
    assert fail(address, "proxy-config", "routes", "tea-2", "-n", "shop") == (
        "Error: no connected proxy in namespace shop matches 'tea-2' at http://HERE; did you mean tea-1.shop?; "
        "connected proxies: tea-1.shop\n"
    )
    assert fail(empty, "proxy-config", "routes", "milk.shop") == (
        "Error: no connected proxy matches 'milk.shop' at http://HERE; no proxies are connected; "
        "pilotctl check-inject milk.shop shows whether the Pod is injected, and --address selects another control plane\n"
    )
    assert fail(address, "proxy-config", "routes", "deploy/milk") == (
        "Error: 'deploy/milk' is a workload of a cluster, and there is no kubeconfig (--kubeconfig, KUBECONFIG): use "
        "POD.NAMESPACE or part of it\n"
    )
    assert fail(address, "proxy-config", "routes", "gw/milk") == (
        "Error: 'gw/milk' is not the name of a proxy: use POD.NAMESPACE or part of it, or "
        "svc/NAME.NAMESPACE; connected proxies: tea-1.shop\n"
    )


def test_unknown_resource(fail: Any, address: str) -> None:
    assert fail(address, "explain", "tea", "x") == "Error: tea-1.shop has no resource 'x'\n"


def test_unreachable_server(fail: Any) -> None:
    text = fail("127.0.0.1:1", "proxy-status")
    assert text.startswith("Error: cannot reach http://HERE: ")
    assert text.endswith(
        ". Is pilot-discovery running there? --address sets its monitoring address, port 15014 by default\n"
    )
    assert text.count("\n") == 1


def test_unreachable_default_says_that_no_cluster_was_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.cli.ctl.connection.DEFAULT_ADDRESS", "http://127.0.0.1:1")
    monkeypatch.setattr("pilot.cli.ctl.connection.has_kubeconfig", lambda: False)
    result = CliRunner().invoke(pilotctl, ["proxy-status"])
    assert "15014 by default; no cluster was searched, because there is no kubeconfig (--kubeconfig" in result.output


def test_remote_access_is_denied(fail: Any, closed: str) -> None:
    assert fail(closed, "problems") == (
        "Error: http://HERE accepts local connections only: use its loopback address, for example through a port-forward\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["proxy-config", "clusters"], "specify PROXY, --envoy URL"),
        (["proxy-config", "cats", "tea"], "No such command 'cats'"),
        (["problems", "--namespaces", "shop"], "'--namespace'?"),
        (["problems", "-o", "xml"], "'xml' is not one of 'table', 'json', 'yaml'"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "--help' for help" in captured.err


def test_missing_command_lists_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "proxy-status, ps" in capsys.readouterr().err


def test_address_flag_may_follow_the_command(capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert main(["problems", "--address", address]) == 0
    assert "bad-regex" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert main(["completion", shell]) == 0
    assert "_PILOTCTL_COMPLETE" in capsys.readouterr().out


def test_undecodable_names_are_escaped(fail: Any, address: str) -> None:
    assert "no connected proxy matches 'mil\\udcff'" in fail(address, "proxy-config", "routes", os.fsdecode(b"mil\xff"))


def test_problem_messages_stay_on_one_line(run: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = [{"severity": "error", "message": "a\nb.yaml: error: forged", "code": "bad"}]
    monkeypatch.setattr(PageClient, "get", lambda *_, **__: forged)
    assert run(address, "problems") == "Error [bad] a\\nb.yaml: error: forged\n1 error.\n"
