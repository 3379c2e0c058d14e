"""Resources that are derived by requested name, shared by proxies, and freed without subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.derive import Lookup, derived
from pilot.envoy.plans.resource_group import NamedGroup, ProxyPlan
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.tables.database import Mesh
from testing.clients.ads import NODE, Client, serving
from testing.clients.scripted_stream import resource

BOTH_VARIANTS = pytest.mark.parametrize("variant", ["sotw", "delta"])
OTHER = NODE.replace("pod", "pad")
derivations: list[str] = []


@derived
def _extension(db: Mesh, name: str, kind: str) -> Resource | None:
    """Return the resource in the row "kind/name" of the table `mesh`."""
    derivations.append(name)
    row: dict[str, str] | None = db.mesh.get(f"{kind}/{name}")
    return resource(kind, name, row["is"]) if row else None


lookup_by_name: Lookup[str, Any, Resource] = Lookup("lookup_by_name", _extension)


@derived
def plan_by_name(db: Mesh, node_id: str) -> ProxyPlan:
    return (
        ProxyPlan({}, {BY_SHORT_NAME[kind]: (NamedGroup(lookup_by_name, (kind,)),) for kind in ("rds", "lds")})
        if db.proxies.get(node_id)
        else ProxyPlan({})
    )


@pytest.fixture(autouse=True)
def _reset_derivations() -> None:
    derivations.clear()


def take_derivations() -> list[str]:
    """Return the names derived since the last call."""
    names = sorted(derivations)
    derivations.clear()
    return names


@BOTH_VARIANTS
async def test_only_requested_names_are_derived_and_updated(variant: str) -> None:
    async with (
        serving(plan=plan_by_name) as server,
        Client(server, variant) as one,
        Client(server, variant, OTHER) as two,
    ):
        for name in "abc":
            server.set(f"rds/{name}", **{"is": "1"})
        assert take_derivations() == []
        await one.request("rds", "a", "b")
        await one.expect("rds", "a", "b")
        assert take_derivations() == ["a", "b"]
        await two.request("rds", "b", "c")
        await two.expect("rds", "b", "c")
        assert take_derivations() == ["c"], "proxies share common names"
        assert server.set("rds/a", **{"is": "2"}) == 1
        await one.expect("rds", "a")
        assert server.set("rds/b", **{"is": "2"}) == 2
        await one.expect("rds", "b")
        await two.expect("rds", "b")
        assert server.set("rds/d", **{"is": "2"}) == 0
        assert take_derivations() == ["a", "b"]


@BOTH_VARIANTS
async def test_proxies_with_equal_names_share_derivations_and_messages(variant: str) -> None:
    async with (
        serving(plan=plan_by_name) as server,
        Client(server, variant) as one,
        Client(server, variant, OTHER) as two,
    ):
        server.set("rds/a", **{"is": "1"})
        for client in (one, two):
            await client.request("rds", "a")
            await client.expect("rds", "a")
        assert take_derivations() == ["a"]
        server.set("rds/a", **{"is": "2"})
        assert await one.expect("rds", "a") == await two.expect("rds", "a")
        assert take_derivations() == ["a"]


@BOTH_VARIANTS
@pytest.mark.parametrize("count", [1, 300])
async def test_added_name_derives_only_itself(variant: str, count: int) -> None:
    async with serving(plan=plan_by_name) as server, Client(server, variant) as client:
        names = [f"n{number:03}" for number in range(count)]
        for name in (*names, "z"):
            server.set(f"rds/{name}", **{"is": "1"})
        await client.request("rds", *names)
        nonce = await client.expect("rds", *names)
        assert len(take_derivations()) == count
        before = server.db.runs
        await client.request("rds", *(["z"] if variant == "delta" else [*names, "z"]), nonce=nonce)
        await client.expect("rds", "z")
        assert take_derivations() == ["z"]
        assert server.db.runs - before == 4  # the row, its resource, the keys and their collection


@BOTH_VARIANTS
async def test_unsubscribed_name_is_freed(variant: str) -> None:
    async with serving(plan=plan_by_name) as server, Client(server, variant) as client:
        for name in "abc":
            server.set(f"rds/{name}", **{"is": "1"})
        await client.request("rds", "a")
        nonce = await client.expect("rds", "a")
        server.discovery.sweep()
        nodes = len(server.db)
        if variant == "delta":
            await client.request("rds", "b", "c")
        else:
            await client.request("rds", "a", "b", "c", nonce=nonce)
        nonce = await client.expect("rds", "b", "c")
        assert len(server.db) > nodes
        if variant == "delta":
            await client.unsubscribe("rds", "b", "c", nonce=nonce)
        else:
            await client.request("rds", "a", nonce=nonce)
        (connection,) = server.discovery.connections()
        await server.eventually(lambda: connection.subscriptions[BY_SHORT_NAME["rds"]].requested.all == {"a"})
        server.discovery.sweep()
        assert len(server.db) == nodes
        assert server.set("rds/b", **{"is": "2"}) == 0
        assert server.set("rds/a", **{"is": "2"}) == 1
        await client.expect("rds", "a")


async def test_unsubscribed_type_is_freed() -> None:
    async with serving(plan=plan_by_name) as server, Client(server, "sotw") as client:
        server.set("rds/a", **{"is": "1"})
        server.set("lds/a", **{"is": "1"})
        await client.request("lds", "a")
        await client.expect("lds", "a")
        server.discovery.sweep()
        nodes = len(server.db)
        await client.request("rds", "a")
        nonce = await client.expect("rds", "a")
        await client.request("rds", nonce=nonce)
        (connection,) = server.discovery.connections()
        await server.eventually(lambda: BY_SHORT_NAME["rds"] not in connection.subscriptions)
        server.discovery.sweep()
        assert len(server.db) == nodes


@BOTH_VARIANTS
async def test_unsubscribed_type_is_freed_while_a_push_is_pending(variant: str) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("eds", a="1")
        server.set("cds", a="1")
        await client.request("cds")
        clusters_nonce = await client.expect("cds", "a")
        await client.request("cds", nonce=clusters_nonce)
        server.discovery.sweep()
        nodes = len(server.db)
        await client.request("eds", "a")
        nonce = await client.expect("eds", "a")
        (connection,) = server.discovery.connections()
        await server.eventually(lambda: connection.is_idle)
        connection.subscriptions[BY_SHORT_NAME["cds"]].owes_all = True  # a push waits for its turn
        await (
            client.unsubscribe("eds", "a", nonce=nonce) if variant == "delta" else client.request("eds", nonce=nonce)
        )
        await client.expect("cds", "a")
        await server.eventually(lambda: connection.is_idle)
        server.discovery.sweep()
        assert len(server.db) == nodes


async def test_unsubscribed_endpoints_are_freed_until_subscribed_again() -> None:
    async with serving() as server, Client(server, "delta") as client:
        server.set("eds", a="1")
        server.set("cds", a="1")
        await client.request("cds")
        await client.expect("cds", "a")
        server.discovery.sweep()
        nodes = len(server.db)
        await client.request("eds", "a")
        nonce = await client.expect("eds", "a")
        assert len(server.db) > nodes
        await client.unsubscribe("eds", "a", nonce=nonce)
        (connection,) = server.discovery.connections()
        await server.eventually(lambda: not connection.subscriptions[BY_SHORT_NAME["eds"]].requested.all)
        server.discovery.sweep()
        assert len(server.db) == nodes
        server.set("eds", a="2")
        await client.request("eds", "a")
        await client.expect("eds", "a")


@BOTH_VARIANTS
async def test_missing_name_is_sent_when_it_appears_and_removed_again(variant: str) -> None:
    async with serving(plan=plan_by_name) as server, Client(server, variant) as client:
        await client.request("rds", "a")
        await client.expect("rds", removed=("a",) if variant == "delta" else ())
        assert server.set("rds/a", **{"is": "1"}) == 1
        await client.expect("rds", "a")
        server.set("rds/a")
        if variant == "delta":
            await client.expect("rds", removed=("a",))
        server.set("rds/a", **{"is": "2"})
        await client.expect("rds", "a")


@BOTH_VARIANTS
async def test_wildcard_types_by_name(variant: str) -> None:
    """Proxyless gRPC listeners: a state-of-the-world response always has the full set."""
    async with serving(plan=plan_by_name) as server, Client(server, variant) as client:
        server.set("lds/a", **{"is": "1"})
        server.set("lds/b", **{"is": "1"})
        await client.request("lds", "a")
        nonce = await client.expect("lds", "a")
        if variant == "delta":
            await client.request("lds", "b")
            await client.expect("lds", "b")
        else:
            await client.request("lds", "a", "b", nonce=nonce)
            await client.expect("lds", "a", "b")
        assert take_derivations() == ["a", "b"]
