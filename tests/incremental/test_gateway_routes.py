"""An edit of an HTTPRoute costs the same for a Gateway with many routes as for one with few."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from types import FrameType

import pytest

from pilot.derive import Database, Node
from pilot.derive.patched import Patched
from pilot.mesh.lowering.gateway_api.http_services import virtual_services_of_http_routes
from testing.mesh.gateway_front import GatewayFront, route
from testing.mesh.world import Rows


def front_with(routes: int, host: str = "") -> GatewayFront:
    return GatewayFront({key: row for number in range(routes) for key, row in route(number, host=host).items()})


def virtual_hosts(front: GatewayFront) -> bytes:
    return b"".join(front.pieces())


def count_refreshes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the refreshed nodes, whether they run or not."""
    counts: Counter[str] = Counter()
    refresh = Database.refresh

    def count_refresh(db: Database, node: Node) -> None:
        counts[node.fn.__name__] += 1
        refresh(db, node)

    monkeypatch.setattr(Database, "refresh", count_refresh)
    return counts


@pytest.mark.parametrize("host", ["", "shared.com"])
def test_edit_refreshes_a_constant_number_of_nodes(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    refreshes = count_refreshes(monkeypatch)
    costs: list[tuple[Counter[str], int]] = []
    for routes in (70, 700):
        front = front_with(routes, host)
        before, runs = virtual_hosts(front), front.mesh.runs
        refreshes.clear()
        front.set(route(routes // 2, "/other", host))
        costs.append((refreshes.copy(), front.mesh.runs - runs))
        assert b"/other" not in before
        assert b"/other" in virtual_hosts(front)
    assert costs[0] == costs[1]
    assert costs[0][1] < 40
    assert costs[0][0]["route_status"] == 1
    others = ("_planned_block", "_merged_keys", "_buckets_of")
    assert not any(name in costs[0][0] for name in others), "these belong to other routes"


def count_calls(front: GatewayFront, rows: Rows) -> int:
    """Count the calls of functions in a commit and the refreshes after it."""
    count = 0

    def count_call(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        front.set(rows)
    finally:
        sys.setprofile(None)
    return count


def test_change_of_one_route_of_a_shared_host_calls_nothing_for_the_others() -> None:
    costs: list[tuple[int, ...]] = []
    for routes in (300, 1100):
        front = front_with(routes, "shared.com")
        front.mesh.collect()  # what the first load no longer needs
        without, new = virtual_hosts(front), route(routes, "/new", "shared.com")
        changes = new, route(routes, "/edited", "shared.com"), dict.fromkeys(new)
        costs.append(tuple(count_calls(front, change) for change in changes))  # type: ignore[arg-type]
        assert virtual_hosts(front) == without
    growths = [(many - few) / 800 for few, many in zip(*costs, strict=True)]
    assert max(growths) < 1, "calls for each existing route, when one is added, edited and deleted"


def test_new_route_refreshes_few_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    refreshes = count_refreshes(monkeypatch)
    front = front_with(400)
    refreshes.clear()
    front.set(route(400, "/new"))
    assert b"/new" in virtual_hosts(front)
    others = {name: count for name, count in refreshes.items() if count > 200}
    assert others == {}


def bases(front: GatewayFront) -> Iterable[object]:
    """Yield the base of each mapping by route. An edit patches a single item."""
    source = front.mesh.find_node(virtual_services_of_http_routes)
    assert source is not None
    (rows,) = (node for node in front.mesh.live_nodes() if node.fn.__name__ == "derived VirtualServices")
    for mapping in (source.value, rows.value.by_key):
        assert isinstance(mapping, Patched)
        yield mapping.base


def test_edit_does_not_copy_all_routes() -> None:
    front = front_with(400)
    front.set(route(7, "/first"))
    before = tuple(bases(front))
    for number in range(20, 39):  # fewer than the square root of the number of routes
        front.set(route(number, f"/next{number}"))
        assert all(base is previous for base, previous in zip(bases(front), before, strict=True))
    assert virtual_hosts(front) == virtual_hosts(GatewayFront(front.world.rows()))
