"""Debug pages about configuration, the registry and caches."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pathlib
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.debug import application as application_module
from pilot.debug.answer_slots import AnswerSlots
from pilot.debug.application import application
from pilot.debug.page import Answer
from pilot.debug.pages.configuration import problemz
from pilot.debug.pages.places import MAX_BYTES
from pilot.debug.sources import Sources
from pilot.envoy.resource import Resource
from pilot.ingest.files.field_lines import find_lines
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.nack import Nack, NackKey
from pilot.mesh.tables.database import Mesh
from testing.mesh.debug_pages import Ask, refusal
from testing.mesh.debug_server import FakeFleet, FakeProblems, sources, with_health


async def test_configz(ask: Ask) -> None:
    assert await ask("/debug/configz") == [
        {
            "apiVersion": "networking.istio.io/v1",
            "kind": "DestinationRule",
            "metadata": {"name": "tea", "namespace": "shop"},
            "spec": {"host": "tea", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "1.5s"}}}},
        }
    ]


async def test_resourcesz(ask: Ask) -> None:
    assert {"group": "networking.istio.io", "version": "v1", "kind": "VirtualService"} in await ask("/debug/resourcesz")


async def test_mesh(ask: Ask) -> None:
    config = await ask("/debug/mesh")
    assert (config["accessLogFile"], config["connectTimeout"], config["rootNamespace"]) == (
        "/dev/stdout",
        "3s",
        "istio-system",
    )


async def test_problemz(ask: Ask) -> None:
    assert await ask("/debug/problemz") == [
        {
            "severity": "warning",
            "code": "unknown-host",
            "group": NETWORKING,
            "kind": "VirtualService",
            "namespace": "shop",
            "name": "tea",
            "path": "spec.hosts[0]",
            "file": "a.yaml",
            "line": 7,
            "message": "no such host",
        }
    ]
    assert await ask("/debug/problemz?namespace=mugs") == []


async def test_problems_of_an_empty_namespace_are_refused(client: TestClient[web.Request, web.Application]) -> None:
    text = "there are no objects in the namespace 'cellar'\n"
    assert await refusal(client, "/debug/problemz?namespace=cellar") == (404, text)
    text = "there are no objects in the namespace 'shpo'; did you mean shop?\n"
    assert await refusal(client, "/debug/problemz?namespace=shpo") == (404, text)


async def test_status_of_an_unknown_kind_is_refused(client: TestClient[web.Request, web.Application]) -> None:
    status, text = await refusal(client, "/debug/statusz?kind=httproutes")
    assert (status, text.partition("; kinds are")[0]) == (
        400,
        "objects of the kind 'httproutes' have no status; did you mean HTTPRoute?",
    )


async def test_problem_between_objects_has_the_place_of_its_field(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "tea.yaml"
    file.write_text(
        f"apiVersion: {NETWORKING}/v1\nkind: VirtualService\nmetadata: {{name: tea, namespace: shop}}\nspec:\n  hosts: [x]\n"
    )
    tea = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "shop", "tea")
    elsewhere = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "shop", "cups")
    problems = [Problem(code="c", message="m", object=ref, path="spec.hosts[0]") for ref in (tea, elsewhere)]
    page = sources(
        Mesh(),
        problems=problems,
        document_of=lambda ref: str(file) if ref == tea else "Kubernetes",
        find_lines=find_lines,
    )
    shown = await problemz(page, {})
    assert [(p.get("file"), p.get("line")) for p in shown] == [(str(file), 5), (None, None)]
    with file.open("ab") as large:
        large.truncate(MAX_BYTES + 1)
    shown = await problemz(page, {})
    assert [(p.get("file"), p.get("line")) for p in shown] == [(str(file), None), (None, None)]


async def test_instancesz(ask: Ask, pages: Sources) -> None:
    assert isinstance(pages.fleet, FakeFleet)
    pages.fleet.current.pop()
    instances = await ask("/debug/instancesz")
    assert list(instances) == ["tea-1.shop"]
    (target,) = instances["tea-1.shop"]
    assert target["Service"]["hostname"] == "tea.shop.svc.cluster.local"
    assert target["Port"] == {"name": "http", "port": 80, "protocol": "HTTP", "TargetPort": 8080}


async def test_networkz(ask: Ask) -> None:
    assert await ask("/debug/networkz") == []


async def test_push_status_is_empty_before_the_first_check(
    client: TestClient[web.Request, web.Application],
) -> None:
    async with client.get("/debug/push_status") as response:
        assert (response.status, await response.text()) == (200, "")


async def test_push_status(pages: Sources) -> None:
    page_sources = await with_health(pages)
    async with (
        TestClient(TestServer(application(page_sources))) as client,
        client.get("/debug/push_status") as response,
    ):
        text = await response.text()
    assert text.startswith('{\n    "pilot_no_ip"')
    assert json.loads(text) == {
        "pilot_eds_no_instances": {"outbound|90||cups.shop.svc.cluster.local": {}},
        "pilot_no_ip": {"cup-1.mugs": {"proxy": "cup-1.mugs"}},
    }


async def test_pushcontext(ask: Ask) -> None:
    context = await ask("/debug/pushcontext")
    assert context["AuthorizationPolicies"] == (await ask("/debug/authorizationz"))["authorization_policies"]
    assert (context["NetworkGateways"], context["UnresolvedGateways"]) == (None, None)


async def test_pages_without_content(ask: Ask) -> None:
    assert await ask("/debug/mcsz") is None
    assert await ask("/debug/ambientz") == {"workloads": None, "services": None, "policies": None}


async def test_cachez(ask: Ask, pages: Sources) -> None:
    assert isinstance(pages.fleet, FakeFleet)
    first, second, other = (
        Resource("one", "t/a", b"x" * 200),
        Resource("two", "t/a", b"y" * 900),
        Resource("one", "t/a", b"z" * 100),
    )
    pages.fleet.resources = {"t/a": [{"one": first, "two": second}, {"one": other, "two": second}], "t/b": [{}]}
    assert await ask("/debug/cachez") == {"t/a": ["one", "two", "one", "two"]}
    sizes = await ask("/debug/cachez?sizes=true")
    assert sizes == {"total": "1.2kB", "t/a": "1.2kB"}
    assert pages.fleet.cache_clears == 0


async def test_clearing_the_cache(client: TestClient[web.Request, web.Application], pages: Sources) -> None:
    async with client.get("/debug/cachez?clear=true") as response:
        assert (response.status, await response.text()) == (200, "Cache cleared\n")
    assert isinstance(pages.fleet, FakeFleet)
    assert pages.fleet.cache_clears == 1


async def test_krtz_lists_derivations_with_counts(ask: Ask) -> None:
    await ask("/debug/registryz")
    states = {entry["name"]: entry["state"] for entry in await ask("/debug/krtz")}
    assert {state["inputCollection"] for state in states.values()} == {"table", "derived"}
    assert states["service"]["outputs"] == {"count": 2}
    values = states["service"]["inputs"]
    assert "service(tea.shop.svc.cluster.local/shop)" in values
    assert all(value["dependencies"] for value in values.values())


async def test_concurrent_pages_are_limited(pages: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    running, peak, resume = 0, 0, asyncio.Event()

    async def respond_slowly(*_: Any) -> Answer:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await resume.wait()
        running -= 1
        return Answer(200, "text/plain", b"")

    monkeypatch.setattr(application_module, "answer", respond_slowly)
    limited = dataclasses.replace(pages, slots=AnswerSlots(2))
    async with TestClient(TestServer(application(limited))) as client:
        responses = [asyncio.create_task(client.get("/debug/connections")) for _ in range(5)]
        async with asyncio.timeout(10):
            while running < 2:
                await asyncio.sleep(0)
            resume.set()
            assert {(await response).status for response in responses} == {200}
    assert peak == 2


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
    for page in ("endpointz", "endpointShardz"):
        assert await ask(f"/debug/{page}") == {"tea.shop.svc.cluster.local": {"shop": shards}}


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


async def test_problems_of_a_namespace_include_those_of_its_proxies(pages: Sources) -> None:
    _, cup = pages.fleet.connections()
    ref = ObjectRef(GroupKind(NETWORKING, "EnvoyFilter"), "shop", "lua")
    cds = BY_SHORT_NAME["cds"]
    pages.db.commit([(pages.db.nacks, NackKey(cup.proxy_key, cds), Nack(cup.proxy.id, "CDS", "bad", (ref,)))])
    problems = FakeProblems([Problem(code="refused", object=ref, message="bad")])
    rejected = dataclasses.replace(pages, problems=lambda: problems)

    async def ask(**query: str) -> Any:
        return await problemz(rejected, {"namespace": "mugs", **query})

    (rejection,) = await ask(proxies="true")
    assert (rejection["kind"], rejection["namespace"], rejection["name"]) == ("EnvoyFilter", "shop", "lua")
    cup.subscriptions[BY_SHORT_NAME["rds"]].nonce_acked = ""  # type: ignore[misc]
    _, silence = await ask(proxies="true")
    assert (silence["code"], silence["kind"], silence["name"]) == ("not-responding", "Proxy", "cup-1")
    text = "is not responding: it has not acknowledged its routes since 2023-11-14 22:13:20 UTC"
    assert (silence["severity"], silence["message"]) == ("warning", text)
    assert len(await ask()) == 1
