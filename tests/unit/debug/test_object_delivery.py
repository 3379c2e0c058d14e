"""The proxies that lack a change, and why."""

from __future__ import annotations

import dataclasses

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef
from pilot.debug import object_delivery
from pilot.debug.object_delivery import find_delivery
from pilot.debug.pages.rollout import history
from pilot.debug.sources import CommittedObject
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.nack import Nack, NackKey
from testing.mesh.debug_server import FakeConnection, FakeWatch, sources
from testing.mesh.objects import world
from testing.mesh.world import proxy

RDS = BY_SHORT_NAME["rds"]
ROUTE = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", "web")
FILTER = ObjectRef(GroupKind(NETWORKING, "EnvoyFilter"), "a", "lua")


@dataclasses.dataclass
class Rejecting(FakeConnection):
    """A connection that rejects all changes."""

    last_event: int = 0

    def delivery(self, event: int) -> str:
        return "done"

    def refusal(self, event: int) -> str:
        return "rds: bad"


def rejecting(*causes: ObjectRef) -> tuple[Rejecting, object]:
    mesh_world = world()
    node = proxy("sidecar", "c", "a", "10.9.0.1")
    watches = {RDS: FakeWatch(last_error="bad", rejected_since=1_700_000_000.0)}
    connection = Rejecting("c.a-1", mesh_world.connect(node), node, subscriptions=watches)
    mesh = mesh_world.mesh
    mesh.commit([(mesh.nacks, NackKey(connection.proxy_key, RDS), Nack("c.a", "RDS", "bad", causes))])
    return connection, mesh


@pytest.mark.parametrize(
    ("causes", "because"),
    [
        ((FILTER,), " because of EnvoyFilter a/lua"),
        ((ROUTE, FILTER), " because of EnvoyFilter a/lua"),
        ((ROUTE,), ""),
        ((), ""),
    ],
)
async def test_rejection_names_the_object_that_causes_it(
    monkeypatch: pytest.MonkeyPatch, causes: tuple[ObjectRef, ...], because: str
) -> None:
    connection, mesh = rejecting(*causes)

    async def affected(*_: object) -> dict[str, frozenset[str]]:
        return {"c.a-1": frozenset({RDS})}

    monkeypatch.setattr(object_delivery, "affected_proxies", affected)
    version = CommittedObject(True, True, False, 0, "", "", 1, False, False, "")
    delivery = await find_delivery(sources(mesh, connection), ROUTE, version, [connection])  # type: ignore[arg-type]
    (lacking,) = delivery.lacking
    assert lacking.reason == f"rejects its routes since 2023-11-14 22:13:20 UTC{because}: bad"


async def test_history_names_the_causes_of_rejections() -> None:
    connection, mesh = rejecting(ROUTE, FILTER)
    pages = sources(mesh, connection)  # type: ignore[arg-type]
    for number in (1, 2):
        pages.changes.record(number, [], 1, 0, 1)
        nacked = type("Delivery", (), {"proxies": 1, "unchanged": 0, "acknowledged": 2 - number, "nacked": number - 1})
        times = dict.fromkeys(("disconnected", "seconds", "seconds_99", "seconds_50"), 0)
        pages.changes.finish(number, type("Outcome", (nacked,), times)())
    newest, oldest = (await history(pages, {}))["changes"]
    (cause,) = newest["refusedFor"]
    assert (cause["kind"], cause["name"], cause["proxies"]) == ("EnvoyFilter", "lua", 1)
    assert oldest["refusedFor"] == []
