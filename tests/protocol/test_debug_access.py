"""CVE-2026-31838: debug pages, over HTTP and over xDS, show the proxies of other namespaces to the control plane's own namespace alone."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import aiohttp
import grpc
import pytest
from envoy.service.status.v3 import csds_pb2

from pilot.debug import application
from pilot.lib.xds_types import DEBUG, DEBUG_PAGE
from testing.clients.ads import Client
from testing.clients.secure_client import SecureClient
from testing.control_planes.secure_plane import Plain, Running, running
from testing.security.tokens import token

SHOP, OTHER = (
    ("sidecar~10.0.0.7~web-1.shop~shop.svc.cluster.local", "shop"),
    ("sidecar~10.0.0.8~pay-1.bank~bank.svc.cluster.local", "bank"),
)
TOOL = "sidecar~10.0.0.9~tool-1.{0}~{0}.svc.cluster.local"
BOTH = pytest.mark.parametrize("variant", ["sotw", "delta"])
NOT_CONNECTED = "Proxy not connected to this Pilot instance"


def client(it: Running, namespace: str, variant: str = "delta", node: str = "") -> SecureClient:
    return SecureClient(
        it.port, it.root, token=token(namespace, "tool"), variant=variant, node_id=node or TOOL.format(namespace)
    )


async def asked(it: Running, namespace: str, type_url: str, *names: str, variant: str = "delta") -> Any:
    """The response to one question of somebody of that namespace."""
    async with client(it, namespace, variant) as tool:
        await tool.ask(type_url, *names)
        return await tool.take()


def bodies(response: Any) -> list[str]:
    return [getattr(found, "resource", found).value.decode() for found in response.resources]


async def refused(it: Running, namespace: str, type_url: str, *names: str) -> tuple[grpc.StatusCode, str]:
    async with client(it, namespace) as tool:
        await tool.ask(type_url, *names)
        return await tool.ends()


async def connect(tool: Client) -> Client:
    await tool.ask("cds")
    await tool.take()
    return tool


@BOTH
async def test_cve_2026_31838_xds_debug_of_another_namespace_is_refused(tmp_path: pathlib.Path, variant: str) -> None:
    async with (
        running(tmp_path) as it,
        client(it, "shop", node=SHOP[0]) as one,
        client(it, "bank", node=OTHER[0]) as two,
    ):
        await connect(one)
        await connect(two)
        for page in (
            "connections",
            "adsz",
            "syncz",
            "configz",
            "registryz",
            "mesh",
            "unknown",
            "sidecarz?proxyID=web-1.shop",
            "adsz?push=true",
        ):
            assert (await refused(it, "shop", DEBUG_PAGE, page))[0] is grpc.StatusCode.PERMISSION_DENIED
        [own] = bodies(await asked(it, "shop", DEBUG_PAGE, "config_dump?proxyID=web-1.shop", variant=variant))
        assert json.loads(own)["configs"]
        for page in ("config_dump", "edsz", "ndsz"):
            [foreign] = bodies(await asked(it, "shop", DEBUG_PAGE, f"{page}?proxyID=pay-1.bank", variant=variant))
            assert foreign.startswith(NOT_CONNECTED)
        assert not (await asked(it, "shop", f"{DEBUG}config_dump", "pay-1.bank", variant=variant)).resources
        assert len((await asked(it, "shop", f"{DEBUG}config_dump", "web-1.shop", variant=variant)).resources) >= 4
        seen = await asked(it, "shop", f"{DEBUG}syncz", variant=variant)
        assert {config.node.id for config in configs(seen)} == {"web-1.shop"}


def configs(response: Any) -> list[csds_pb2.ClientConfig]:
    return [csds_pb2.ClientConfig.FromString(getattr(found, "resource", found).value) for found in response.resources]


@BOTH
async def test_from_the_control_planes_namespace_everything_is_seen(tmp_path: pathlib.Path, variant: str) -> None:
    async with (
        running(tmp_path, {"POD_NAME": "istiod-1"}) as it,
        client(it, "shop", node=SHOP[0]) as one,
        client(it, "bank", node=OTHER[0]) as two,
    ):
        await connect(one)
        await two.ask("cds")
        await two.ask("cds", nonce=(await two.take()).nonce)
        await it.until(
            lambda: any(w.nonce_acked for c in it.plane.discovery.connections() for w in c.subscriptions.values())
        )
        seen = await asked(it, "istio-system", f"{DEBUG}syncz", variant=variant)
        statuses = {
            c.node.id: [csds_pb2.ConfigStatus.Name(g.config_status) for g in c.generic_xds_configs]
            for c in configs(seen)
        }
        assert statuses == {"web-1.shop": ["STALE"], "pay-1.bank": ["SYNCED"]}
        assert json.loads(seen.control_plane.identifier)["ID"] == "istiod-1"
        [listed] = bodies(await asked(it, "istio-system", DEBUG_PAGE, "connections", variant=variant))
        assert json.loads(listed)["totalClients"] == 3, "the two, and who asks"
        [missing] = bodies(await asked(it, "istio-system", DEBUG_PAGE, "nothing", variant=variant))
        assert missing == "404 page not found\n"


async def test_a_question_watches_nothing_and_is_answered_each_time(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as it, client(it, "istio-system") as tool:
        nonces = set()
        for page in ("connections", "syncz", "connections"):
            await tool.ask(DEBUG_PAGE, page)
            response = await tool.take()
            [body] = bodies(response)
            assert ("totalClients" in body) == (
                page == "connections"
            )  # else it answers what only acknowledged the answer before
            nonces.add(response.nonce)
            await tool.ask(DEBUG_PAGE, page, nonce=response.nonce)
        assert len(nonces) == 3
        [connection] = it.plane.discovery.connections()
        assert not connection.subscriptions
        await connect(tool)


@BOTH
async def test_a_question_with_a_nonce_of_nobody_is_answered(tmp_path: pathlib.Path, variant: str) -> None:
    async with running(tmp_path) as it, client(it, "istio-system", variant=variant) as tool:
        await tool.ask(
            DEBUG_PAGE, "connections", nonce="2026-01-01 00:00:00 +0000 UTC m=+0.1"
        )  # as istioctl sends its first request
        [body] = bodies(await tool.take())
        assert json.loads(body)["totalClients"] == 1


async def test_questions_are_refused_with_a_reason(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as it:
        assert await refused(it, "istio-system", DEBUG_PAGE) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "exactly one debug request is expected",
        )
        assert (await refused(it, "istio-system", f"{DEBUG}config_dump", "a", "b"))[
            0
        ] is grpc.StatusCode.INVALID_ARGUMENT
        async with Client(Plain(it.plane.ports["xDS"].number), node_id=SHOP[0]) as nobody:
            await nobody.ask(DEBUG_PAGE, "connections")
            assert await nobody.ends() == (grpc.StatusCode.UNAUTHENTICATED, "authentication required")


async def test_settings_open_the_pages_to_others(tmp_path: pathlib.Path) -> None:
    for environ in ({"DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES": "tools,shop"}, {"ENABLE_DEBUG_ENDPOINT_AUTH": "false"}):
        async with running(tmp_path, environ) as it:
            assert bodies(await asked(it, "shop", DEBUG_PAGE, "connections"))
    async with running(tmp_path, {"ENABLE_DEBUG_ON_HTTP": "false"}) as it:
        assert bodies(await asked(it, "istio-system", DEBUG_PAGE, "connections")) == []


async def test_cve_2026_31838_debug_pages_of_another_namespace_are_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running(tmp_path) as it,
        client(it, "shop", node=SHOP[0]) as one,
        client(it, "bank", node=OTHER[0]) as two,
    ):
        await connect(one)
        await connect(two)
        assert await page(it, "connections") == (200, True), "whoever is on this machine sees everything"
        monkeypatch.setattr(application, "is_loopback", lambda _: False)
        assert await page(it, "connections") == (401, False)
        assert await page(it, "connections", "nonsense") == (401, False)
        assert await page(it, "connections", token("istio-system", "tool")) == (200, True)
        assert await page(it, "connections", token("shop", "tool")) == (403, False)
        assert await page(it, "config_dump?proxyID=web-1.shop", token("shop", "tool")) == (200, True)
        assert await page(it, "config_dump?proxyID=pay-1.bank", token("shop", "tool")) == (404, True)
        assert await page(it, "config_dump", token("shop", "tool")) == (400, True)


async def page(it: Running, name: str, made: str = "") -> tuple[int, bool]:
    """The status of a page, and whether it says anything."""
    url = f"http://127.0.0.1:{it.plane.ports['monitoring'].number}/debug/{name}"
    headers = {"Authorization": f"Bearer {made}"} if made else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status, bool(await response.read())
