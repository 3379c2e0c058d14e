"""CVE-2026-31838: debug pages show proxies of other namespaces only to the control plane's namespace, over HTTP and xDS."""

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

SHOP_PROXY, BANK_PROXY = (
    ("sidecar~10.0.0.7~web-1.shop~shop.svc.cluster.local", "shop"),
    ("sidecar~10.0.0.8~pay-1.bank~bank.svc.cluster.local", "bank"),
)
TOOL = "sidecar~10.0.0.9~tool-1.{0}~{0}.svc.cluster.local"
BOTH_VARIANTS = pytest.mark.parametrize("variant", ["sotw", "delta"])
NOT_CONNECTED = "Proxy not connected to this Pilot instance"


def client(env: Running, namespace: str, variant: str = "delta", node: str = "") -> SecureClient:
    return SecureClient(
        env.port, env.root, token=token(namespace, "tool"), variant=variant, node_id=node or TOOL.format(namespace)
    )


async def ask(env: Running, namespace: str, type_url: str, *names: str, variant: str = "delta") -> Any:
    """Return the response to one request from a client in the namespace."""
    async with client(env, namespace, variant) as tool:
        await tool.request(type_url, *names)
        return await tool.receive()


def bodies(response: Any) -> list[str]:
    return [getattr(item, "resource", item).value.decode() for item in response.resources]


async def refusal(env: Running, namespace: str, type_url: str, *names: str) -> tuple[grpc.StatusCode, str]:
    async with client(env, namespace) as tool:
        await tool.request(type_url, *names)
        return await tool.end_status()


async def connect(tool: Client) -> Client:
    await tool.request("cds")
    await tool.receive()
    return tool


@BOTH_VARIANTS
async def test_cve_2026_31838_xds_debug_from_another_namespace_is_denied(tmp_path: pathlib.Path, variant: str) -> None:
    async with (
        running(tmp_path) as env,
        client(env, "shop", node=SHOP_PROXY[0]) as one,
        client(env, "bank", node=BANK_PROXY[0]) as two,
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
            assert (await refusal(env, "shop", DEBUG_PAGE, page))[0] is grpc.StatusCode.PERMISSION_DENIED
        [body] = bodies(await ask(env, "shop", DEBUG_PAGE, "config_dump?proxyID=web-1.shop", variant=variant))
        assert json.loads(body)["configs"]
        for page in ("config_dump", "edsz", "ndsz"):
            [body_of_bank] = bodies(await ask(env, "shop", DEBUG_PAGE, f"{page}?proxyID=pay-1.bank", variant=variant))
            assert body_of_bank.startswith(NOT_CONNECTED)
        assert not (await ask(env, "shop", f"{DEBUG}config_dump", "pay-1.bank", variant=variant)).resources
        assert len((await ask(env, "shop", f"{DEBUG}config_dump", "web-1.shop", variant=variant)).resources) >= 4
        response = await ask(env, "shop", f"{DEBUG}syncz", variant=variant)
        assert {config.node.id for config in configs(response)} == {"web-1.shop"}


def configs(response: Any) -> list[csds_pb2.ClientConfig]:
    return [csds_pb2.ClientConfig.FromString(getattr(item, "resource", item).value) for item in response.resources]


@BOTH_VARIANTS
async def test_control_plane_namespace_sees_all_proxies(tmp_path: pathlib.Path, variant: str) -> None:
    async with (
        running(tmp_path, {"POD_NAME": "istiod-1"}) as env,
        client(env, "shop", node=SHOP_PROXY[0]) as one,
        client(env, "bank", node=BANK_PROXY[0]) as two,
    ):
        await connect(one)
        await two.request("cds")
        await two.request("cds", nonce=(await two.receive()).nonce)
        await env.until(
            lambda: any(w.nonce_acked for c in env.plane.discovery.connections() for w in c.subscriptions.values())
        )
        response = await ask(env, "istio-system", f"{DEBUG}syncz", variant=variant)
        statuses = {
            c.node.id: [csds_pb2.ConfigStatus.Name(g.config_status) for g in c.generic_xds_configs]
            for c in configs(response)
        }
        assert statuses == {"web-1.shop": ["STALE"], "pay-1.bank": ["SYNCED"]}
        assert json.loads(response.control_plane.identifier)["ID"] == "istiod-1"
        [connections] = bodies(await ask(env, "istio-system", DEBUG_PAGE, "connections", variant=variant))
        assert json.loads(connections)["totalClients"] == 3, "both proxies and the client itself"
        [unknown_page] = bodies(await ask(env, "istio-system", DEBUG_PAGE, "nothing", variant=variant))
        assert unknown_page == "404 page not found\n"


async def test_each_debug_request_is_answered_without_a_subscription(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as env, client(env, "istio-system") as tool:
        nonces = set()
        for page in ("connections", "syncz", "connections"):
            await tool.request(DEBUG_PAGE, page)
            response = await tool.receive()
            [body] = bodies(response)
            assert ("totalClients" in body) == (page == "connections"), "acknowledgements are not answered"
            nonces.add(response.nonce)
            await tool.request(DEBUG_PAGE, page, nonce=response.nonce)
        assert len(nonces) == 3
        [connection] = env.plane.discovery.connections()
        assert not connection.subscriptions
        await connect(tool)


@BOTH_VARIANTS
async def test_debug_request_with_an_unknown_nonce_is_answered(tmp_path: pathlib.Path, variant: str) -> None:
    async with running(tmp_path) as env, client(env, "istio-system", variant=variant) as tool:
        # istioctl sends a nonce like this with its first request.
        await tool.request(DEBUG_PAGE, "connections", nonce="2026-01-01 00:00:00 +0000 UTC m=+0.1")
        [body] = bodies(await tool.receive())
        assert json.loads(body)["totalClients"] == 1


async def test_refused_debug_requests_have_a_reason(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as env:
        assert await refusal(env, "istio-system", DEBUG_PAGE) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "exactly one debug request is expected",
        )
        assert (await refusal(env, "istio-system", f"{DEBUG}config_dump", "a", "b"))[
            0
        ] is grpc.StatusCode.INVALID_ARGUMENT
        async with Client(Plain(env.plane.ports["xDS"].number), node_id=SHOP_PROXY[0]) as anonymous:
            await anonymous.request(DEBUG_PAGE, "connections")
            assert await anonymous.end_status() == (grpc.StatusCode.UNAUTHENTICATED, "authentication required")


async def test_settings_of_debug_access(tmp_path: pathlib.Path) -> None:
    for environ in ({"DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES": "tools,shop"}, {"ENABLE_DEBUG_ENDPOINT_AUTH": "false"}):
        async with running(tmp_path, environ) as env:
            assert bodies(await ask(env, "shop", DEBUG_PAGE, "connections"))
    async with running(tmp_path, {"ENABLE_DEBUG_ON_HTTP": "false"}) as env:
        assert bodies(await ask(env, "istio-system", DEBUG_PAGE, "connections")) == []


async def test_cve_2026_31838_http_debug_from_another_namespace_is_denied(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running(tmp_path) as env,
        client(env, "shop", node=SHOP_PROXY[0]) as one,
        client(env, "bank", node=BANK_PROXY[0]) as two,
    ):
        await connect(one)
        await connect(two)
        assert await http_status(env, "connections") == (200, True), "loopback clients see all proxies"
        monkeypatch.setattr(application, "is_loopback", lambda _: False)
        assert await http_status(env, "connections") == (401, False)
        assert await http_status(env, "connections", "nonsense") == (401, False)
        assert await http_status(env, "connections", token("istio-system", "tool")) == (200, True)
        assert await http_status(env, "connections", token("shop", "tool")) == (403, False)
        assert await http_status(env, "config_dump?proxyID=web-1.shop", token("shop", "tool")) == (200, True)
        assert await http_status(env, "config_dump?proxyID=pay-1.bank", token("shop", "tool")) == (404, True)
        assert await http_status(env, "config_dump", token("shop", "tool")) == (400, True)


async def http_status(env: Running, name: str, credential: str = "") -> tuple[int, bool]:
    """Return the status of a page, and whether its body has content."""
    url = f"http://127.0.0.1:{env.plane.ports['monitoring'].number}/debug/{name}"
    headers = {"Authorization": f"Bearer {credential}"} if credential else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status, bool(await response.read())
