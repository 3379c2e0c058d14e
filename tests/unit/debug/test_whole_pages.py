"""Debug pages field by field, and access to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug.access import is_trusted, sources_for, visible_sources
from pilot.debug.application import application
from pilot.debug.page import Page, Refused
from pilot.debug.pages import index
from pilot.debug.pages.index import render_index
from pilot.debug.plain_json import LazyFields, parts
from pilot.debug.sources import Sources
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.settings.process import DebugSettings
from testing.mesh.debug_pages import Ask, build_mesh, connection, refusal
from testing.mesh.debug_server import FakeFleet, sources

AT = "2023-11-14T22:13:20.000000Z"
TYPES = [BY_SHORT_NAME[name] for name in ("cds", "lds", "eds", "rds")]
NAMED = ("cluster", "listener", "route", "endpoint")
RULES = ["networking.istio.io/DestinationRule", "rule_hosts"]
ATTRIBUTES = {
    "ServiceRegistry": "Kubernetes",
    "Namespace": "shop",
    "ExportTo": None,
    "Visibility": 0,
    "Aliases": None,
    "ClusterExternalAddresses": {"Addresses": None},
    "ClusterExternalPorts": None,
    "PassthroughTargetPorts": None,
    "Type": "ClusterIP",
    "ExternalName": "",
    "NodeLocal": False,
    "TrafficDistribution": 0,
    "ObjectName": "",
    "DNSConnectStrategy": 0,
    "PublishNotReadyAddresses": False,
}


def service_page_entry(
    name: str, created: str, address: str, port: dict[str, Any], labels: Any, selector: Any
) -> dict[str, Any]:
    return {
        "Attributes": {**ATTRIBUTES, "Name": name, "Labels": labels, "LabelSelectors": selector},
        "ports": [port],
        "creationTime": created,
        "hostname": f"{name}.shop.svc.cluster.local",
        "clusterVIPs": {"Addresses": {"Kubernetes": [address]}},
        "defaultAddress": address,
        "Resolution": 0,
        "MeshExternal": False,
        "ResourceVersion": "",
    }


HTTP, TCP = {"name": "http", "port": 80, "protocol": "HTTP"}, {"name": "tcp", "port": 90, "protocol": "TCP"}
TEA = service_page_entry("tea", "2024-01-02T03:04:05Z", "10.1.0.1", HTTP, {"team": "leaves"}, {"app": "tea"})
CUPS = service_page_entry("cups", "2024-01-03T00:00:00Z", "10.1.0.2", TCP, None, None)


async def test_services_and_endpoints(ask: Ask) -> None:
    assert await ask("/debug/registryz") == [TEA, CUPS]
    endpoint = {
        "Labels": {
            "topology.istio.io/network": "",
            "app": "tea",
            "kubernetes.io/hostname": "node-1",
            "topology.istio.io/cluster": "Kubernetes",
        },
        "Addresses": ["10.2.0.1"],
        "ServicePortName": "http",
        "LegacyClusterPortKey": 0,
        "ServiceAccount": "spiffe://cluster.local/ns/shop/sa/brewer",
        "Network": "",
        "Locality": {"Label": "", "ClusterID": "Kubernetes"},
        "EndpointPort": 8080,
        "LbWeight": 0,
        "TLSMode": "disabled",
        "Namespace": "shop",
        "WorkloadName": "tea-1",
        "HostName": "",
        "SubDomain": "",
        "HealthStatus": 1,
        "SendUnhealthyEndpoints": True,
        "NodeName": "node-1",
    }
    shards = {
        "Shards": {"Kubernetes/Kubernetes": [endpoint]},
        "ServiceAccounts": {"spiffe://cluster.local/ns/shop/sa/brewer": {}},
    }
    assert await ask("/debug/endpointz") == {"tea.shop.svc.cluster.local": {"shop": shards}}


async def test_sidecarz(ask: Ask) -> None:
    rule = {
        "type": {"group": "networking.istio.io", "version": "v1", "kind": "DestinationRule"},
        "uid": "",
        "name": "tea",
        "namespace": "shop",
        "domain": "cluster.local",
        "resourceVersion": "",
        "creationTimestamp": "0001-01-01T00:00:00Z",
        "generation": 0,
        "Spec": {"host": "tea", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "1.5s"}}}},
        "Status": {},
        "Extra": None,
    }
    by_host = {"tea.shop.svc.cluster.local": TEA, "cups.shop.svc.cluster.local": CUPS}
    merged = {"exportTo": {}, "from": [{"Namespace": "shop", "Name": "tea"}], "rule": rule}
    assert await ask("/debug/sidecarz?proxyID=tea") == {
        "version": FakeFleet.version,
        "name": "default-sidecar",
        "namespace": "shop",
        "outboundTrafficPolicy": {"mode": "ALLOW_ANY"},
        "sidecar": None,
        "services": [TEA, CUPS],
        "egressListenerServices": [[TEA, CUPS]],
        "servicesByHostname": by_host,
        "destinationRules": {"tea.shop.svc.cluster.local": [merged]},
    }
    router_scope = await ask("/debug/sidecarz?proxyID=cup")
    assert (router_scope["outboundTrafficPolicy"], router_scope["egressListenerServices"]) == (None, [None])


def client_entry(name: str) -> dict[str, Any]:
    return {"connectionId": name, "connectedAt": AT, "address": "10.0.0.9:4444"}


async def test_connections_and_adsz(ask: Ask, pages: Sources) -> None:
    assert await ask("/debug/connections") == {
        "totalClients": 2,
        "clients": [client_entry("cup-1.mugs-4"), client_entry("tea-1.shop-3")],
    }
    pages.fleet.connections()[1].subscriptions = {}  # type: ignore[misc]
    cup = client_entry("cup-1.mugs-4") | {"labels": {"topology.istio.io/cluster": "Kubernetes"}}
    tea = client_entry("tea-1.shop-3") | {
        "labels": {"app": "tea", "topology.istio.io/cluster": "Kubernetes"},
        "metadata": {"NAMESPACE": "shop", "LABELS": {"app": "tea"}, "CLUSTER_ID": "Kubernetes"},
        "watches": {type_url: [] for type_url in TYPES},
    }
    assert await ask("/debug/adsz") == {"totalClients": 2, "clients": [cup, tea]}


async def test_syncz(ask: Ask, pages: Sources) -> None:
    numbers = {f"{name}_{state}": "n1" for name in NAMED for state in ("sent", "acked")}
    resources = {type_url: {"sent": "n1", "acked": "n1", "sentTime": AT} for type_url in TYPES}
    cup = {"proxy": "cup-1.mugs", "proxy_type": "router", "resources": resources} | numbers
    tea = {
        "cluster_id": "Kubernetes",
        "proxy": "tea-1.shop",
        "proxy_type": "sidecar",
        "istio_version": "1.32.0",
        "resources": resources,
    } | numbers
    assert await ask("/debug/syncz") == [cup, tea]
    assert await ask("/debug/syncz?namespace=shop") == [tea]
    assert await ask("/debug/syncz?namespace=none") == []
    watch = pages.fleet.connections()[0].subscriptions[BY_SHORT_NAME["cds"]]
    watch.sent_at, watch.nonce_acked = 0.0, ""  # type: ignore[misc]
    (waiting,) = await ask("/debug/syncz?namespace=shop")
    assert waiting["resources"][BY_SHORT_NAME["cds"]] == {"sent": "n1", "sentTime": "0001-01-01T00:00:00Z"}


async def test_krtz_entries(ask: Ask) -> None:
    await ask("/debug/config_dump?proxyID=tea")
    entries = await ask("/debug/krtz")
    assert [entry["uid"] for entry in entries] == list(range(len(entries)))
    names = [entry["name"] for entry in entries]
    assert names == sorted(names)
    by_name = {entry["name"]: entry["state"] for entry in entries}
    assert by_name["rule_of"] == {
        "outputs": {"count": 2},
        "inputCollection": "derived",
        "inputs": {
            "rule_of(Kubernetes/shop/tea)": {"outputs": ["cluster"], "dependencies": RULES},
            "rule_of(Kubernetes/shop/cups)": {"outputs": ["cluster"], "dependencies": RULES},
        },
        "synced": True,
    }
    assert by_name["networking.istio.io/DestinationRule"]["inputCollection"] == "table"


# -- explanations ------------------------------------------------------------------------------------------------------


async def test_explain_one_type_and_unknown_names(client: TestClient[web.Request, web.Application], ask: Ask) -> None:
    service = {
        "kind": "Service",
        "cluster": "Kubernetes",
        "namespace": "shop",
        "name": "tea",
        "through": ["clusters", "cluster"],
    }
    rule = {
        "group": "networking.istio.io",
        "kind": "DestinationRule",
        "namespace": "shop",
        "name": "tea",
        "through": ["clusters", "cluster", "rule_of"],
    }
    cds = {"type": "cds", "objects": [service, rule], "lists": ["rule_hosts"], "patches": [], "proxy": []}
    path = "/debug/explain?proxyID=tea&resource=outbound|80||"
    assert await ask(f"{path}tea&type=CDS") == {
        "proxy": "tea-1.shop",
        "resource": "outbound|80||tea",
        "explanations": [cds],
    }
    types = ", ".join(BY_SHORT_NAME)
    assert await refusal(client, f"{path}tea&type=x") == (400, f"unknown type 'x'; valid types are {types}\n")
    close = "'outbound|80||tea' or 'outbound|80||cups'"
    assert await refusal(client, f"{path}te") == (
        404,
        f"tea-1.shop has no resource 'outbound|80||te'; did you mean {close}?\n",
    )
    assert await refusal(client, "/debug/explain?proxyID=tea&resource=zzz") == (
        404,
        "tea-1.shop has no resource 'zzz'\n",
    )


async def test_explain_separates_proxy_attributes() -> None:
    async with TestClient(TestServer(application(sources(build_mesh(), connection())))) as client:
        objects = {}
        for name in ("virtualInbound", "inbound|8080||", "outbound|80||tea.shop.svc.cluster.local"):
            async with client.get("/debug/explain", params={"proxyID": "tea", "resource": name}) as response:
                explanation = (await response.json())["explanations"][0]
            objects[name] = [
                {(item["kind"], item["name"]): item["through"] for item in explanation[part]}
                for part in ("objects", "proxy")
            ]
    pod, service = ("Pod", "tea-1"), ("Service", "tea")
    by_targets = ["inbound_facet", "service_targets"]
    listener, listener_proxy = objects["virtualInbound"]
    assert listener == {("MeshConfig", "mesh"): ["inbound_listeners", "inbound_chains"]}
    assert listener_proxy == {pod: by_targets, service: by_targets}
    cluster, cluster_proxy = objects["inbound|8080||"]
    path = ["inbound_clusters", "_inbound_cluster"]
    assert cluster == {service: [*path, "service"], ("DestinationRule", "tea"): [*path, "merged_rule"]}
    assert cluster_proxy == {("MeshConfig", "mesh"): ["inbound_facet", "policy_label_keys"], pod: by_targets}
    assert objects["outbound|80||tea.shop.svc.cluster.local"][1] == {}


# -- access ------------------------------------------------------------------------------------------------------------

SYSTEM, SHOP, OTHER = (f"spiffe://cluster.local/ns/{namespace}/sa/x" for namespace in ("istio-system", "shop", "other"))


@pytest.mark.parametrize(
    ("identities", "settings", "trusted"),
    [
        ([SYSTEM], DebugSettings(), True),
        ([SHOP, SYSTEM], DebugSettings(), True),
        ([SHOP], DebugSettings(), False),
        ([], DebugSettings(), False),
        (["nobody"], DebugSettings(), False),
        ([SHOP], DebugSettings(allowed_namespaces=("shop",)), True),
        ([OTHER], DebugSettings(allowed_namespaces=("shop",)), False),
        ([OTHER], DebugSettings(endpoint_auth=False), True),
        ([], DebugSettings(endpoint_auth=False), False),
    ],
)
def test_is_trusted(identities: Sequence[str], settings: DebugSettings, trusted: bool) -> None:
    assert is_trusted(sources(build_mesh(), settings=settings), identities) is trusted


def refusal_of(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(Refused) as error:
        call()
    return error.value.status, error.value.text


def test_untrusted_callers_see_only_their_namespace(pages: Sources) -> None:
    assert visible_sources(pages, [SYSTEM]) is pages
    own_fleet = visible_sources(pages, [SHOP]).fleet
    assert own_fleet.version == FakeFleet.version
    assert [item.id for item in own_fleet.connections()] == ["tea-1.shop-3"]
    assert [
        refusal_of(call)
        for call in (
            own_fleet.push_all,
            lambda: own_fleet.disconnect("tea-1.shop-3"),
            own_fleet.cached_resources,
            own_fleet.clear_cache,
        )
    ] == [(403, "")] * 4
    assert isinstance(pages.fleet, FakeFleet)
    assert (pages.fleet.pushes, pages.fleet.disconnected, pages.fleet.cache_clears) == (0, [], 0)
    assert refusal_of(lambda: visible_sources(pages, [])) == (401, "")
    assert refusal_of(lambda: visible_sources(pages, ["nobody"])) == (403, "")
    for path in ("/debug/config_dump", "/debug/ndsz", "/debug/edsz"):
        assert [item.id for item in sources_for(pages, path, [OTHER]).fleet.connections()] == []
    assert refusal_of(lambda: sources_for(pages, "/debug/syncz", [SHOP])) == (403, "")
    assert sources_for(pages, "/debug/syncz", [SYSTEM]) is pages


# -- index -------------------------------------------------------------------------------------------------------------


def index_lines(html: str) -> list[str]:
    """Return the lines of the index after its head, without the common lines."""
    return [line for line in html.partition("configz?pretty</a></p>\n")[2].splitlines() if line][:-3]


def proxy_row(name: str, description: str, since: str) -> str:
    links = " ".join(
        f'<a href="/debug/{page}?proxyID={name}&amp;pretty=">{text}</a>'
        for page, text in (
            ("config_dump", "configuration"),
            ("edsz", "endpoints"),
            ("sidecarz", "scope"),
            ("adsz", "watches"),
        )
    )
    return f'<tr><td class="path">{name} <p>{description}</p></td><td>{since}</td><td class="links">{links}</td></tr>'


def test_index_lines(pages: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_065.5)
    mesh_page = Page("/debug/a", "What a<b says", lambda *_: None, examples=("x=1&y=2", "z"))
    proxy_page = Page("/debug/b", "What b says", lambda *_: None, of_proxy=True)
    facts = [
        ("", "1.2.3", "version"),
        ("", 2, "proxies connected"),
        ("", 2, "services"),
        ("", 0, "virtual services"),
        ("bad", 1, "problems"),
    ]
    items = "".join(f'<li class="{kind}"><b>{value}</b><span>{name}</span></li>' for kind, value, name in facts)
    head = '<div class="box"><table><tr><th>proxy</th><th>since</th><th>show</th></tr>'
    examples = "".join(f'<a class="path more" href="/debug/a?{query}">?{query}</a>' for query in ("x=1&amp;y=2", "z"))
    anonymous = [
        "<h2>All &amp; everything</h2>",
        f'<div class="box"><table class="pages"><tr><td><a class="path" href="/debug/a">/debug/a</a>{examples}</td><td>What a&lt;b says</td></tr>',
        "</table></div>",
        "<h2>One</h2>",
        '<form id="one-proxy"><input type="hidden" name="pretty" value="">',
        '<label>proxy<input name="proxyID" list="proxies" required placeholder="pod.namespace or part of it"></label>',
        '<label>resource for explain<input name="resource" placeholder="outbound|80||reviews.default.svc.cluster.local"></label>',
        '<datalist id="proxies"></datalist></form>',
        '<div class="box"><table class="pages"><tr><td><button class="path" form="one-proxy" formaction="/debug/b">/debug/b</button></td>'
        "<td>What b says</td></tr>",
        "</table></div>",
    ]
    sections = {"All & everything": [mesh_page], "One": [proxy_page]}
    assert index_lines(render_index(sections, None)) == anonymous
    options = '<option value="cup-1.mugs-4"><option value="tea-1.shop-3">'
    with_options = [line.replace("</datalist>", f"{options}</datalist>") for line in anonymous]
    assert index_lines(render_index(sections, pages)) == [
        f'<ul class="facts">{items}</ul>',
        "<h2>Connected</h2>",
        head + proxy_row("cup-1.mugs-4", "router ", "0:01:05"),
        proxy_row("tea-1.shop-3", "sidecar 1.32.0", "0:01:05"),
        "</table></div>",
        *with_options,
    ]
    monkeypatch.setattr(time, "time", lambda: 1_600_000_000.0)  # a clock set back
    monkeypatch.setattr(index, "_SHOWN_PROXIES", 1)
    limited = index_lines(render_index(sections, pages))
    assert limited[2:4] == [
        head + proxy_row("cup-1.mugs-4", "router ", "0:00:00"),
        "</table></div><p>The first 1 of 2.</p>",
    ]
    assert '<datalist id="proxies"><option value="cup-1.mugs-4"></datalist></form>' in limited


# -- JSON ------------------------------------------------------------------------------------------------------------------


def test_pretty_encoding() -> None:
    value = {
        "a": [1, {"b": LazyFields(iter([("c", []), ("d", {"e": [{"f": {}}]})]))}],
        "\udcff": iter(()),
        "g": {"h": "\ud800x", "i": ["\udcff"]},
    }
    encoded = b"".join(parts(value, pretty=True)).decode()
    assert encoded.splitlines() == [
        "{",
        '    "a": [',
        "        1,",
        "        {",
        '            "b": {',
        '                "c": [],',
        '                "d": {',
        '                    "e": [',
        "                        {",
        '                            "f": {}',
        "                        }",
        "                    ]",
        "                }",
        "            }",
        "        }",
        "    ],",
        '    "\\\\xff": [],',
        '    "g": {',
        '        "h": "\\\\ud800x",',
        '        "i": [',
        '            "\\\\xff"',
        "        ]",
        "    }",
        "}",
    ]
