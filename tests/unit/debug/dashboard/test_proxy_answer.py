"""Answers of the dashboard about one proxy."""

from __future__ import annotations

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef
from pilot.debug.dashboard.proxy_answer import connection_of, describe_proxy, list_resources, show_resource
from pilot.debug.page import Refused
from pilot.debug.sources import Sources
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.nack import Nack, NackKey
from testing.mesh.debug_server import FakeWatch, sources
from testing.mesh.objects import world
from tests.unit.debug.dashboard.test_fleet import connection, rejected
from tests.unit.debug.dashboard.test_graph import SLICE, WEB, WEB_POD


def pages_with(**watches: FakeWatch) -> Sources:
    mesh_world = world(WEB, WEB_POD, SLICE)
    client = connection("web-0.a", **watches)
    client.proxy_key = mesh_world.connect(client.proxy)
    ref = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", "r")
    nack = Nack("web-0.a", "RDS", "no", (ref,))
    mesh_world.mesh.commit([(mesh_world.mesh.nacks, NackKey(client.proxy_key, BY_SHORT_NAME["rds"]), nack)])
    return sources(mesh_world.mesh, client, connection("web-0.ab"))


def test_state_of_each_type_has_the_causes_of_a_rejection() -> None:
    answer = describe_proxy(pages_with(cds=FakeWatch(), rds=rejected(5.0)), "web-0.a-1")
    assert (answer["state"], answer["services"]) == ("refused", (("web.a.svc.cluster.local", "a"),))
    types = {
        one["type"]: (one["error"], one["since"], [ref["name"] for ref in one["causes"]]) for one in answer["types"]
    }
    assert types == {"cds": ("", 0.0, []), "rds": ("no", 5.0, ["r"])}


def test_types_say_whether_anything_was_acknowledged() -> None:
    watches = {"cds": FakeWatch(), "lds": FakeWatch(nonce_acked="")}
    answer = describe_proxy(pages_with(**watches), "web-0.a-1")
    assert {one["type"]: one["acknowledged"] for one in answer["types"]} == {"cds": True, "lds": False}


def test_proxy_is_found_by_its_exact_name_only() -> None:
    pages = pages_with()
    assert connection_of(pages, "web-0.a").id == connection_of(pages, "web-0.a-1").id == "web-0.a-1"
    with pytest.raises(Refused):
        connection_of(pages, "web-0")


async def test_resources_are_listed_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = pages_with(cds=FakeWatch())
    name = "outbound|80||web.a.svc.cluster.local"
    answer = await list_resources(pages, "web-0.a", "cds", "OUTBOUND")
    assert name in answer["names"]
    assert (await show_resource(pages, "web-0.a", "cds", name))["name"] == name
    total = answer["total"]
    monkeypatch.setattr("pilot.debug.dashboard.proxy_answer.MAX_NAMES", 0)
    assert await list_resources(pages, "web-0.a", "cds", "OUTBOUND") == {"total": total, "names": []}
    with pytest.raises(Refused, match="unknown type 'x'; valid types are cds"):
        await list_resources(pages, "web-0.a", "x", "")
