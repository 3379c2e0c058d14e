"""Delivery of changes by whole control planes: waiting for it, and what it costs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
from typing import Any

import pytest
import yaml

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.controllers.delivery_status import MERGE_PATCH
from pilot.mesh.model.proxy import NodeType, Proxy
from testing.clients.fleet import Fleet
from testing.control_planes.kube_plane import Plane, running
from testing.control_planes.rollout_trial import ROUTE, SERVICE, Options, run_trial
from testing.kube.kube_access import client_of, server_with_crds, until, write_kubeconfig


async def test_delivery_is_reported_neither_falsely_nor_never(tmp_path: pathlib.Path) -> None:
    options = Options(changes=12, workers=3, replicas=2, proxies=4, drops=0.3, slow=0.1, nacks=0.05)
    result = await run_trial(options, tmp_path)
    assert (result.false, result.expired, result.delivered + result.refused) == ([], 0, 12)


async def page(plane: Plane, path: str, /, **query: str) -> Any:
    client = PageClient(f"127.0.0.1:{plane.plane.ports['monitoring'].number}")
    return await asyncio.to_thread(client.get, path, **query)


async def wait_for_delivery(plane: Plane, **query: str) -> Any:
    async with asyncio.timeout(30):
        while not (answer := await page(plane, "rollout", **query))["delivered"]:
            await asyncio.sleep(0.05)
    return answer


async def test_bytes_of_all_changes_and_requests_are_those_that_proxies_receive(tmp_path: pathlib.Path) -> None:
    (tmp_path / "service.yaml").write_text(SERVICE.format(1))
    async with running({}, configDir=str(tmp_path)) as plane:
        async with asyncio.timeout(30):
            while not plane.plane.ready:
                await asyncio.sleep(0.01)
        fleet = Fleet(f"127.0.0.1:{plane.port}")
        for number in (1, 2):
            described = Proxy(
                type=NodeType.SIDECAR,
                id=f"p{number}.shop",
                ips=(f"10.0.0.{number}",),
                dns_domain="shop.svc.cluster.local",
                namespace="shop",
            )
            await fleet.connect(str(number), described, delta=number == 1)
        query = {"kind": "serviceentries", "namespace": "shop", "name": "s1"}
        async with asyncio.timeout(30):
            while (await page(plane, "rollout", **query))["connected"] < 2:
                await asyncio.sleep(0.05)
        assert (await wait_for_delivery(plane, **query))["starting"] == 0
        (tmp_path / "route.yaml").write_text(ROUTE.format(1, 7))
        query = {"kind": "vs", "namespace": "shop", "name": "s1"}
        async with asyncio.timeout(30):
            while not (await page(plane, "rollout", **query))["exists"]:
                await asyncio.sleep(0.05)
        answer = await wait_for_delivery(plane, **query)
        assert (answer["affected"], answer["acknowledged"], answer["refused"]) == (2, 2, 0)
        history = await page(plane, "history")
        received = sum(client.size for client in fleet.clients.values())
        await fleet.stop()
    newest = history["changes"][0]
    assert [(o["kind"], o["name"]) for o in newest["objects"]] == [("VirtualService", "s1")]
    assert newest["bytes"].keys() == {"rds"}
    assert newest["derivations"] > 0
    costs = [*history["changes"], history["requests"], history["others"]]
    assert sum(sum(cost["bytes"].values()) for cost in costs) == received
    assert sum(history["total"]["bytes"].values()) == received


async def test_page_refuses_unknown_and_ambiguous_kinds(tmp_path: pathlib.Path) -> None:
    async with running({}, configDir=str(tmp_path)) as plane:
        async with asyncio.timeout(30):
            while not plane.plane.ready:
                await asyncio.sleep(0.01)
        for query, text in (
            ({"kind": "virtualservce", "name": "x"}, "did you mean"),
            ({"kind": "gateway", "name": "x"}, "is ambiguous: use Gateway."),
            ({"kind": "vs"}, "the name of an object"),
            ({"kind": "vs", "name": "x", "generation": "y"}, "is not a generation"),
        ):
            with pytest.raises(CommandError, match=text):
                await page(plane, "rollout", **query)
        assert (await page(plane, "rollout", kind="vs", name="x"))["delivered"] is False
        assert (await page(plane, "rollout", kind="vs", name="x", absent="true"))["delivered"] is True


LOCAL = """
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: closed}
spec: {egress: [{hosts: ["./*"]}]}
"""


async def test_only_proxies_whose_resources_contain_an_object_are_affected(tmp_path: pathlib.Path) -> None:
    (tmp_path / "mesh.yaml").write_text(SERVICE.format(1) + "---" + ROUTE.format(1, 7) + LOCAL)
    async with running({}, configDir=str(tmp_path)) as plane:
        async with asyncio.timeout(30):
            while not plane.plane.ready:
                await asyncio.sleep(0.01)
        fleet = Fleet(f"127.0.0.1:{plane.port}")
        for number, namespace in enumerate(("shop", "closed")):
            described = Proxy(
                type=NodeType.SIDECAR,
                id=f"p.{namespace}",
                ips=(f"10.0.0.{number}",),
                dns_domain=f"{namespace}.svc.cluster.local",
                namespace=namespace,
            )
            await fleet.connect(str(number), described, delta=False)
        for kind, name, namespace in (("vs", "s1", "shop"), ("sidecar", "default", "closed")):
            query = {"kind": kind, "namespace": namespace, "name": name}
            async with asyncio.timeout(30):
                while not (answer := await page(plane, "rollout", **query))["acknowledged"] or answer["starting"]:
                    await asyncio.sleep(0.05)
            assert (answer["connected"], answer["affected"], answer["acknowledged"]) == (2, 1, 1)
            assert (answer["lacking"], answer["delivered"]) == ([], True)
        await fleet.stop()


UNBOUND = """---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: unbound, namespace: shop}
spec: {hosts: [s1.example.com], gateways: [missing], http: [{route: [{destination: {host: missing}}]}]}
"""


@pytest.mark.parametrize("others", ["", "---" + ROUTE.format(1, 7)])
async def test_an_object_that_leaves_all_resources_equal_affects_no_proxy(tmp_path: pathlib.Path, others: str) -> None:
    """The VirtualService is read for its host, but no proxy gets it, as the history shows."""
    (tmp_path / "mesh.yaml").write_text(SERVICE.format(1) + others)
    async with running({}, configDir=str(tmp_path)) as plane:
        async with asyncio.timeout(30):
            while not plane.plane.ready:
                await asyncio.sleep(0.01)
        fleet = Fleet(f"127.0.0.1:{plane.port}")
        described = Proxy(type=NodeType.SIDECAR, id="p.shop", ips=("10.0.0.1",), dns_domain="", namespace="shop")
        await fleet.connect("p", described, delta=False)
        query = {"kind": "serviceentries", "namespace": "shop", "name": "s1"}
        async with asyncio.timeout(30):
            while not (await page(plane, "rollout", **query))["affected"]:
                await asyncio.sleep(0.05)
        await wait_for_delivery(plane, **query)
        (tmp_path / "unbound.yaml").write_text(UNBOUND)
        query = {"kind": "vs", "namespace": "shop", "name": "unbound"}
        async with asyncio.timeout(30):
            while not (await page(plane, "rollout", **query))["exists"]:
                await asyncio.sleep(0.05)
        answer = await wait_for_delivery(plane, **query)
        newest = (await page(plane, "history"))["changes"][0]
        await fleet.stop()
    assert (answer["affected"], answer["acknowledged"]) == (0, 0)
    assert newest["proxies"] == newest.get("unchanged", 0)


async def test_condition_of_an_object_tells_its_delivery(tmp_path: pathlib.Path) -> None:
    async with server_with_crds() as server:
        server.apply(SERVICE.format(1))
        access = str(write_kubeconfig(server, tmp_path / "config"))
        async with running({"PILOT_ENABLE_STATUS": "true", "POD_NAME": "istiod-1"}, kubeconfig=access) as plane:
            await until(lambda: plane.plane.ready)
            fleet = Fleet(f"127.0.0.1:{plane.port}")
            described = Proxy(
                type=NodeType.SIDECAR,
                id="p.shop",
                ips=("10.0.0.1",),
                dns_domain="shop.svc.cluster.local",
                namespace="shop",
            )
            await fleet.connect("1", described, delta=True)
            await until(lambda: len(plane.plane.discovery.connections()) == 1)

            def told() -> list[tuple[str, str, int]]:
                stored = server.get("networking.istio.io", "virtualservices", "shop", "s1") or {}
                conditions = stored.get("status", {}).get("conditions", ())
                return [(c["type"], c["message"], c["observedGeneration"]) for c in conditions if c["status"] == "True"]

            collection = "/apis/networking.istio.io/v1/namespaces/shop/virtualservices"
            created, edited = (json.dumps(yaml.safe_load(ROUTE.format(1, number))).encode() for number in (1, 2))
            client = client_of(server)
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(client.close)
                await client.call("POST", collection, body=created)
                await until(lambda: told() == [("Reconciled", "1/1 proxies up to date", 1)])
                await client.call("PATCH", f"{collection}/s1", body=edited, content_type=MERGE_PATCH)
                await until(lambda: told() == [("Reconciled", "1/1 proxies up to date", 2)])
            await fleet.stop()
