"""An edit of one HTTPRoute of a Gateway with many looks at as much, and copies as little, as of a Gateway with few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from pilot.derive import Database, Node
from pilot.derive.patched import Patched
from pilot.mesh.lowering.gateway_api.http_services import virtual_services_of_http_routes
from testing.mesh.gateway_front import Front, route


def front_with(routes: int) -> Front:
    return Front({key: row for number in range(routes) for key, row in route(number).items()})


def answer(front: Front) -> bytes:
    return b"".join(front.pieces())


def count_refreshes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the values that are looked at, whether they run or not."""
    counted: Counter[str] = Counter()
    refresh = Database.refresh

    def counting(db: Database, node: Node) -> None:
        counted[node.fn.__name__] += 1
        refresh(db, node)

    monkeypatch.setattr(Database, "refresh", counting)
    return counted


def test_an_edit_looks_at_the_same_values_whatever_other_routes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = count_refreshes(monkeypatch)
    seen: list[tuple[Counter[str], int]] = []
    for routes in (70, 700):
        front = front_with(routes)
        before, runs = answer(front), front.mesh.runs
        looked_at.clear()
        front.set(route(routes // 2, "/other"))
        seen.append((looked_at.copy(), front.mesh.runs - runs))
        assert b"/other" not in before
        assert b"/other" in answer(front)
    assert seen[0] == seen[1]
    assert seen[0][1] < 40
    assert seen[0][0]["route_status"] == 1
    assert not any(name in seen[0][0] for name in ("_planned_block", "_merged_keys", "_parts_of")), (
        "these are of neighbours"
    )


def bases(front: Front) -> Iterable[object]:
    """Yields what the mappings with an item for each route stand on, of which an edit changes one item."""
    source = front.mesh.find_node(virtual_services_of_http_routes)
    assert source is not None
    (rows,) = (node for node in front.mesh.live_nodes() if node.fn.__name__ == "derived VirtualServices")
    for found in (source.value, rows.value.by_key):
        assert isinstance(found, Patched)
        yield found.base


def test_an_edit_copies_no_list_of_all_routes() -> None:
    front = front_with(400)
    front.set(route(7, "/first"))
    before = tuple(bases(front))
    for number in range(20, 39):  # up to the square root of their number
        front.set(route(number, f"/next{number}"))
        assert all(now is then for now, then in zip(bases(front), before, strict=True))
    assert answer(front) == answer(Front(front.world.rows()))
