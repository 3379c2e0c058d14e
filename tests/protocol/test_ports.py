"""Two ports in one process, with different services and authentication."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import grpc
import pytest

from pilot.derive import derived
from pilot.envoy.plans.resource_group import Group, PatchSide, ProxyPlan
from pilot.lib.spiffe import Identity, parse_identity
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh
from pilot.settings.process import ServeSettings
from pilot.xds.ads import Ads, AdsOptions
from pilot.xds.authn.identity import Caller, IdentityError, no_authentication, verified_identity
from pilot.xds.server import drain, make_server
from testing.clients.ads import Client, Server, header_identities, resources, serving

BOTH_VARIANTS = pytest.mark.parametrize("variant", ["sotw", "delta"])
POD = "spiffe://cluster.local/ns/ns/sa/pod"


@derived
def plan_with_secrets(db: Mesh, node_id: str) -> ProxyPlan:
    if db.proxies.get(node_id) is None:
        return ProxyPlan({})
    return ProxyPlan(
        {BY_SHORT_NAME[kind]: (Group(resources, (kind, "all"), PatchSide.NONE),) for kind in ("cds", "sds")}
    )


class Secured(NamedTuple):
    port: int
    ads: Ads
    grpc: grpc.aio.Server


@contextlib.asynccontextmanager
async def serving_two_ports() -> AsyncIterator[tuple[Server, Secured]]:
    async with serving(plan=plan_with_secrets) as plain:
        ads = Ads(plain.discovery, plain.pusher, plain.metrics, AdsOptions(authenticate=header_identities))
        server = make_server(ServeSettings(), [ads.handlers()])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield plain, Secured(port, ads, server)
        finally:
            await server.stop(None)


@BOTH_VARIANTS
async def test_secrets_are_only_for_authenticated_callers(variant: str) -> None:
    async with (
        serving_two_ports() as (plain, secured),
        Client(plain, variant, identities=POD) as anonymous,
        Client(secured, variant, identities=POD) as authenticated,
    ):
        plain.set("sds", s="1")
        plain.set("cds", a="1")
        await authenticated.request("sds", "s")
        await authenticated.expect("sds", "s")
        await anonymous.request("sds", "s")
        await anonymous.request("cds")
        await anonymous.expect("cds", "a")
        assert {c.proxy.identity for c in plain.discovery.connections()} == {POD, ""}
        assert len(plain.db.proxies) == 2, "an authenticated node is another proxy than an equal unauthenticated one"
        assert plain.set("sds", s="2") == 1
        await authenticated.expect("sds", "s")
        await authenticated.request("cds")
        await authenticated.expect("cds", "a")


@pytest.mark.parametrize(
    ("shows", "metadata"),
    [
        ("spiffe://cluster.local/ns/other/sa/pod", {}),
        (POD, {"SERVICE_ACCOUNT": "boss"}),
        (POD, {"NAMESPACE": "other"}),
    ],
)
async def test_mismatched_identity_is_refused_without_details(shows: str, metadata: dict[str, str]) -> None:
    async with serving_two_ports() as (plain, secured), Client(secured, identities=shows, **metadata) as client:
        status, details = await client.rejection()
        assert (status, "spiffe" in details) == (grpc.StatusCode.PERMISSION_DENIED, False)
        assert not plain.discovery.connections()


async def test_forged_identity_is_refused_without_details() -> None:
    async with serving_two_ports() as (_, secured), Client(secured, identities="forged") as client:
        status, details = await client.end_status()
        assert (status, "signed" in details) == (grpc.StatusCode.UNAUTHENTICATED, False)


async def test_draining_port_ends_only_its_streams() -> None:
    async with serving_two_ports() as (plain, secured), Client(plain) as one, Client(secured, identities=POD) as two:
        plain.set("cds", a="1")
        for client in (one, two):
            await client.request("cds")
            await client.expect("cds", "a")
        await drain(secured.grpc, secured.ads.connections, 5.0)
        assert await two.end_status() == (grpc.StatusCode.OK, "")
        assert [c.proxy.identity for c in plain.discovery.connections()] == [""]
        plain.set("cds", a="2")
        await one.expect("cds", "a")


async def test_port_serves_only_its_services() -> None:
    async with serving_two_ports() as (plain, _):
        server = make_server(ServeSettings(), [])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with Client(Secured(port, plain.ads, server)) as client:
                assert (await client.end_status())[0] is grpc.StatusCode.UNIMPLEMENTED
        finally:
            await server.stop(None)


def test_verified_identity_matches_namespace_and_account() -> None:
    def proxy(**metadata: str) -> Proxy:
        return Proxy(
            type=NodeType.SIDECAR, id="a.ns", ips=("10.0.0.1",), dns_domain="ns.svc", namespace="ns", metadata=metadata
        )

    others = ["https://ns", "spiffe://cluster.local/ns/other/sa/pod"]
    assert verified_identity([], proxy()) == ""
    assert verified_identity([*others, POD], proxy()) == POD
    assert verified_identity([POD.replace("/pod", "/pad"), POD], proxy(SERVICE_ACCOUNT="pod")) == POD
    with pytest.raises(IdentityError, match="sa/pod does not match the namespace ns"):
        verified_identity(others, proxy())
    with pytest.raises(IdentityError, match="does not match the service account pad in namespace ns"):
        verified_identity([POD], proxy(SERVICE_ACCOUNT="pad"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (POD, Identity("cluster.local", "ns", "pod")),
        ("cluster.local/ns/ns/sa/pod", None),
        ("spiffe:///ns/ns/sa/pod", None),
        ("spiffe://cluster.local/ns//sa/pod", None),
        ("spiffe://cluster.local/ns/ns/sa/", None),
        ("spiffe://cluster.local/ns/ns/sa/pod/more", None),
        ("spiffe://cluster.local/sa/ns/ns/pod", None),
    ],
)
def test_parse_identity(text: str, expected: Identity | None) -> None:
    assert parse_identity(text) == expected


async def test_no_authentication() -> None:
    assert await no_authentication(Caller("10.0.0.1:5")) == ()
