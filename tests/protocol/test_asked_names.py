"""What a proxy asks for by name decides what is derived: shared by those that name the same, freed when nobody names it."""

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

BOTH = pytest.mark.parametrize("variant", ["sotw", "delta"])
OTHER = NODE.replace("pod", "pad")
derivations: list[str] = []


@derived
def _extension(db: Mesh, name: str, kind: str) -> Resource | None:
    """The row "kind/name" of the table `mesh`, whose only entry is the content."""
    derivations.append(name)
    row: dict[str, str] | None = db.mesh.get(f"{kind}/{name}")
    return resource(kind, name, row["is"]) if row else None


named: Lookup[str, Any, Resource] = Lookup("named", _extension)


@derived
def plan_by_name(db: Mesh, node_id: str) -> ProxyPlan:
    return (
        ProxyPlan({}, {BY_SHORT_NAME[kind]: (NamedGroup(named, (kind,)),) for kind in ("rds", "lds")})
        if db.proxies.get(node_id)
        else ProxyPlan({})
    )


@pytest.fixture(autouse=True)
def _nothing_was_derived() -> None:
    derivations.clear()


def runs() -> list[str]:
    """The names that were derived since the last call."""
    found = sorted(derivations)
    derivations.clear()
    return found


@BOTH
async def test_only_what_is_named_is_derived_and_each_edit_reaches_who_named_it(variant: str) -> None:
    async with (
        serving(plan=plan_by_name) as server,
        Client(server, variant) as one,
        Client(server, variant, OTHER) as two,
    ):
        for name in "abc":
            server.set(f"rds/{name}", **{"is": "1"})
        assert runs() == []
        await one.ask("rds", "a", "b")
        await one.gets("rds", "a", "b")
        assert runs() == ["a", "b"]
        await two.ask("rds", "b", "c")
        await two.gets("rds", "b", "c")
        assert runs() == ["c"], "two share what they have in common"
        assert server.set("rds/a", **{"is": "2"}) == 1
        await one.gets("rds", "a")
        assert server.set("rds/b", **{"is": "2"}) == 2
        await one.gets("rds", "b")
        await two.gets("rds", "b")
        assert server.set("rds/d", **{"is": "2"}) == 0
        assert runs() == ["a", "b"]


@BOTH
async def test_proxies_that_name_the_same_share_everything(variant: str) -> None:
    async with (
        serving(plan=plan_by_name) as server,
        Client(server, variant) as one,
        Client(server, variant, OTHER) as two,
    ):
        server.set("rds/a", **{"is": "1"})
        for client in (one, two):
            await client.ask("rds", "a")
            await client.gets("rds", "a")
        assert runs() == ["a"]
        server.set("rds/a", **{"is": "2"})
        assert await one.gets("rds", "a") == await two.gets("rds", "a")
        assert runs() == ["a"]


@BOTH
@pytest.mark.parametrize("many", [1, 300])
async def test_a_name_that_is_added_costs_itself_alone(variant: str, many: int) -> None:
    async with serving(plan=plan_by_name) as server, Client(server, variant) as client:
        names = [f"n{number:03}" for number in range(many)]
        for name in (*names, "z"):
            server.set(f"rds/{name}", **{"is": "1"})
        await client.ask("rds", *names)
        nonce = await client.gets("rds", *names)
        assert len(runs()) == many
        before = server.db.runs
        await client.ask("rds", *(["z"] if variant == "delta" else [*names, "z"]), nonce=nonce)
        await client.gets("rds", "z")
        assert runs() == ["z"]
        assert server.db.runs - before == 4  # the row, its resource, the keys and their gathering


@BOTH
async def test_a_name_that_nobody_names_any_more_is_freed(variant: str) -> None:
    async with serving(plan=plan_by_name) as server, Client(server, variant) as client:
        for name in "abc":
            server.set(f"rds/{name}", **{"is": "1"})
        await client.ask("rds", "a")
        nonce = await client.gets("rds", "a")
        server.discovery.sweep()
        nodes = len(server.db)
        if variant == "delta":
            await client.ask("rds", "b", "c")
        else:
            await client.ask("rds", "a", "b", "c", nonce=nonce)
        nonce = await client.gets("rds", "b", "c")
        assert len(server.db) > nodes
        if variant == "delta":
            await client.unsubscribe("rds", "b", "c", nonce=nonce)
        else:
            await client.ask("rds", "a", nonce=nonce)
        (connection,) = server.discovery.connections()
        await server.eventually(lambda: connection.subscriptions[BY_SHORT_NAME["rds"]].requested.all == {"a"})
        server.discovery.sweep()
        assert len(server.db) == nodes
        assert server.set("rds/b", **{"is": "2"}) == 0
        assert server.set("rds/a", **{"is": "2"}) == 1
        await client.gets("rds", "a")


async def test_a_type_that_is_no_longer_asked_for_is_let_go() -> None:
    async with serving(plan=plan_by_name) as server, Client(server, "sotw") as client:
        server.set("rds/a", **{"is": "1"})
        server.set("lds/a", **{"is": "1"})
        await client.ask("lds", "a")
        await client.gets("lds", "a")
        server.discovery.sweep()
        nodes = len(server.db)
        await client.ask("rds", "a")
        nonce = await client.gets("rds", "a")
        await client.ask("rds", nonce=nonce)
        (connection,) = server.discovery.connections()
        await server.eventually(lambda: BY_SHORT_NAME["rds"] not in connection.subscriptions)
        server.discovery.sweep()
        assert len(server.db) == nodes


@BOTH
async def test_a_type_that_is_no_longer_asked_for_while_another_is_owed_is_let_go(variant: str) -> None:
    async with serving() as server, Client(server, variant) as client:
        server.set("eds", a="1")
        server.set("cds", a="1")
        await client.ask("cds")
        known = await client.gets("cds", "a")
        await client.ask("cds", nonce=known)
        server.discovery.sweep()
        nodes = len(server.db)
        await client.ask("eds", "a")
        nonce = await client.gets("eds", "a")
        (connection,) = server.discovery.connections()
        await server.eventually(lambda: connection.is_idle)
        connection.subscriptions[BY_SHORT_NAME["cds"]].owes_all = True  # as by a push that waits for its turn
        await (client.unsubscribe("eds", "a", nonce=nonce) if variant == "delta" else client.ask("eds", nonce=nonce))
        await client.gets("cds", "a")
        await server.eventually(lambda: connection.is_idle)
        server.discovery.sweep()
        assert len(server.db) == nodes


async def test_a_proxy_that_names_no_endpoints_any_more_holds_none_and_gets_them_when_it_names_some_again() -> None:
    async with serving() as server, Client(server, "delta") as client:
        server.set("eds", a="1")
        server.set("cds", a="1")
        await client.ask("cds")
        await client.gets("cds", "a")
        server.discovery.sweep()
        nodes = len(server.db)
        await client.ask("eds", "a")
        nonce = await client.gets("eds", "a")
        assert len(server.db) > nodes
        await client.unsubscribe("eds", "a", nonce=nonce)
        (connection,) = server.discovery.connections()
        await server.eventually(lambda: not connection.subscriptions[BY_SHORT_NAME["eds"]].requested.all)
        server.discovery.sweep()
        assert len(server.db) == nodes
        server.set("eds", a="2")
        await client.ask("eds", "a")
        await client.gets("eds", "a")


@BOTH
async def test_a_name_without_a_resource_is_sent_when_it_comes_and_missed_when_it_goes(variant: str) -> None:
    async with serving(plan=plan_by_name) as server, Client(server, variant) as client:
        await client.ask("rds", "a")
        await client.gets("rds", removed=("a",) if variant == "delta" else ())
        assert server.set("rds/a", **{"is": "1"}) == 1
        await client.gets("rds", "a")
        server.set("rds/a")
        if variant == "delta":
            await client.gets("rds", removed=("a",))
        server.set("rds/a", **{"is": "2"})
        await client.gets("rds", "a")


@BOTH
async def test_types_that_have_no_names_of_their_own_may_depend_on_names_too(variant: str) -> None:
    """Listeners of gRPC without a proxy: a state-of-the-world response to them is always the full set."""
    async with serving(plan=plan_by_name) as server, Client(server, variant) as client:
        server.set("lds/a", **{"is": "1"})
        server.set("lds/b", **{"is": "1"})
        await client.ask("lds", "a")
        nonce = await client.gets("lds", "a")
        if variant == "delta":
            await client.ask("lds", "b")
            await client.gets("lds", "b")
        else:
            await client.ask("lds", "a", "b", nonce=nonce)
            await client.gets("lds", "a", "b")
        assert runs() == ["a", "b"]
