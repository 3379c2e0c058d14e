"""Pages of the monitoring port to the last field, and what who is not of the control plane may ask of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug import index
from pilot.debug.access import is_trusted, sources_for, visible_sources
from pilot.debug.application import application
from pilot.debug.index import render_index
from pilot.debug.page import Page, Refused
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


def shown_service(
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
TEA = shown_service("tea", "2024-01-02T03:04:05Z", "10.1.0.1", HTTP, {"team": "leaves"}, {"app": "tea"})
CUPS = shown_service("cups", "2024-01-03T00:00:00Z", "10.1.0.2", TCP, None, None)


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


async def test_the_scope_of_a_sidecar(ask: Ask) -> None:
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
    of_gateway = await ask("/debug/sidecarz?proxyID=cup")
    assert (of_gateway["outboundTrafficPolicy"], of_gateway["egressListenerServices"]) == (None, [None])


def client_of(name: str) -> dict[str, Any]:
    return {"connectionId": name, "connectedAt": AT, "address": "10.0.0.9:4444"}


async def test_who_is_connected(ask: Ask, pages: Sources) -> None:
    assert await ask("/debug/connections") == {
        "totalClients": 2,
        "clients": [client_of("cup-1.mugs-4"), client_of("tea-1.shop-3")],
    }
    pages.fleet.connections()[1].subscriptions = {}  # type: ignore[misc]
    cup = client_of("cup-1.mugs-4") | {"labels": {"topology.istio.io/cluster": "Kubernetes"}}
    tea = client_of("tea-1.shop-3") | {
        "labels": {"app": "tea", "topology.istio.io/cluster": "Kubernetes"},
        "metadata": {"NAMESPACE": "shop", "LABELS": {"app": "tea"}, "CLUSTER_ID": "Kubernetes"},
        "watches": {type_url: [] for type_url in TYPES},
    }
    assert await ask("/debug/adsz") == {"totalClients": 2, "clients": [cup, tea]}


async def test_how_far_each_proxy_is(ask: Ask, pages: Sources) -> None:
    numbers = {f"{name}_{what}": "n1" for name in NAMED for what in ("sent", "acked")}
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
    (waits,) = await ask("/debug/syncz?namespace=shop")
    assert waits["resources"][BY_SHORT_NAME["cds"]] == {"sent": "n1", "sentTime": "0001-01-01T00:00:00Z"}


async def test_derivations_of_a_mesh(ask: Ask) -> None:
    await ask("/debug/config_dump?proxyID=tea")
    found = await ask("/debug/krtz")
    assert [entry["uid"] for entry in found] == list(range(len(found)))
    names = [entry["name"] for entry in found]
    assert names == sorted(names)
    by_name = {entry["name"]: entry["state"] for entry in found}
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


# -- what a resource is made from ------------------------------------------------------------------------------------------


async def test_why_a_resource_is_as_it_is(client: TestClient[web.Request, web.Application], ask: Ask) -> None:
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


async def test_what_makes_the_proxy_what_its_resource_is_for_is_told_beside_it() -> None:
    async with TestClient(TestServer(application(sources(build_mesh(), connection())))) as client:
        found = {}
        for name in ("virtualInbound", "inbound|8080||", "outbound|80||tea.shop.svc.cluster.local"):
            async with client.get("/debug/explain", params={"proxyID": "tea", "resource": name}) as answer:
                shown = (await answer.json())["explanations"][0]
            found[name] = [{(o["kind"], o["name"]): o["through"] for o in shown[part]} for part in ("objects", "proxy")]
    pod, service = ("Pod", "tea-1"), ("Service", "tea")
    by_targets = ["inbound_facet", "service_targets"]
    listener, listener_proxy = found["virtualInbound"]
    assert listener == {("MeshConfig", "mesh"): ["inbound_listeners", "inbound_chains"]}
    assert listener_proxy == {pod: by_targets, service: by_targets}
    cluster, cluster_proxy = found["inbound|8080||"]
    way = ["inbound_clusters", "_inbound_cluster"]
    assert cluster == {service: [*way, "service"], ("DestinationRule", "tea"): [*way, "merged_rule"]}
    assert cluster_proxy == {("MeshConfig", "mesh"): ["inbound_facet", "policy_label_keys"], pod: by_targets}
    assert found["outbound|80||tea.shop.svc.cluster.local"][1] == {}


# -- who may ask -----------------------------------------------------------------------------------------------------------

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
def test_who_sees_everything(identities: Sequence[str], settings: DebugSettings, trusted: bool) -> None:
    assert is_trusted(sources(build_mesh(), settings=settings), identities) is trusted


def refused(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.status, caught.value.text


def test_others_see_proxies_of_their_own_namespace_alone(pages: Sources) -> None:
    assert visible_sources(pages, [SYSTEM]) is pages
    own = visible_sources(pages, [SHOP]).fleet
    assert own.version == FakeFleet.version
    assert [connected.id for connected in own.connections()] == ["tea-1.shop-3"]
    assert [
        refused(call)
        for call in (own.push_all, lambda: own.disconnect("tea-1.shop-3"), own.cached_resources, own.clear_cache)
    ] == [(403, "")] * 4
    assert isinstance(pages.fleet, FakeFleet)
    assert (pages.fleet.pushes, pages.fleet.disconnected, pages.fleet.cache_clears) == (0, [], 0)
    assert refused(lambda: visible_sources(pages, [])) == (401, "")
    assert refused(lambda: visible_sources(pages, ["nobody"])) == (403, "")
    for path in ("/debug/config_dump", "/debug/ndsz", "/debug/edsz"):
        assert [connected.id for connected in sources_for(pages, path, [OTHER]).fleet.connections()] == []
    assert refused(lambda: sources_for(pages, "/debug/syncz", [SHOP])) == (403, "")
    assert sources_for(pages, "/debug/syncz", [SYSTEM]) is pages


# -- the index -------------------------------------------------------------------------------------------------------------


def listed(shown: str) -> list[str]:
    """The lines of the index after its head, without what every page has."""
    return [line for line in shown.partition("configz?pretty</a></p>\n")[2].splitlines() if line][:-3]


def proxy_row(name: str, about: str, since: str) -> str:
    links = " ".join(
        f'<a href="/debug/{page}?proxyID={name}&amp;pretty=">{text}</a>'
        for page, text in (
            ("config_dump", "configuration"),
            ("edsz", "endpoints"),
            ("sidecarz", "scope"),
            ("adsz", "watches"),
        )
    )
    return f'<tr><td class="path">{name} <p>{about}</p></td><td>{since}</td><td class="links">{links}</td></tr>'


def test_the_index_line_by_line(pages: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_065.5)
    plain = Page("/debug/a", "What a<b says", lambda *_: None, examples=("x=1&y=2", "z"))
    of_one = Page("/debug/b", "What b says", lambda *_: None, of_proxy=True)
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
    bare = [
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
    sections = {"All & everything": [plain], "One": [of_one]}
    assert listed(render_index(sections, None)) == bare
    options = '<option value="cup-1.mugs-4"><option value="tea-1.shop-3">'
    whole = [line.replace("</datalist>", f"{options}</datalist>") for line in bare]
    assert listed(render_index(sections, pages)) == [
        f'<ul class="facts">{items}</ul>',
        "<h2>Connected</h2>",
        head + proxy_row("cup-1.mugs-4", "router ", "0:01:05"),
        proxy_row("tea-1.shop-3", "sidecar 1.32.0", "0:01:05"),
        "</table></div>",
        *whole,
    ]
    monkeypatch.setattr(time, "time", lambda: 1_600_000_000.0)  # the clock was set back
    monkeypatch.setattr(index, "_SHOWN_PROXIES", 1)
    fewer = listed(render_index(sections, pages))
    assert fewer[2:4] == [
        head + proxy_row("cup-1.mugs-4", "router ", "0:00:00"),
        "</table></div><p>The first 1 of 2.</p>",
    ]
    assert '<datalist id="proxies"><option value="cup-1.mugs-4"></datalist></form>' in fewer


# -- JSON ------------------------------------------------------------------------------------------------------------------


def test_json_to_the_last_space() -> None:
    value = {
        "a": [1, {"b": LazyFields(iter([("c", []), ("d", {"e": [{"f": {}}]})]))}],
        "\udcff": iter(()),
        "g": {"h": "\ud800x", "i": ["\udcff"]},
    }
    made = b"".join(parts(value, pretty=True)).decode()
    assert made.splitlines() == [
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
