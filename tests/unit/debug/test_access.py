"""Access of callers to the debug pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pilot.debug.access import is_trusted, sources_for, visible_sources
from pilot.debug.page import Refused
from pilot.debug.sources import Sources
from pilot.settings.process import DebugSettings
from testing.mesh.debug_pages import build_mesh
from testing.mesh.debug_server import FakeFleet, sources

SYSTEM, SHOP, OTHER = (f"spiffe://cluster.local/ns/{namespace}/sa/x" for namespace in ("istio-system", "shop", "other"))


@pytest.mark.parametrize(
    ("identities", "settings", "trusted"),
    [
        ([SYSTEM], DebugSettings(), True),
        ([SHOP, SYSTEM], DebugSettings(), True),
        ([SHOP], DebugSettings(), False),
        ([], DebugSettings(), False),
        (["nobody"], DebugSettings(), False),
        ([SHOP], DebugSettings(allowed_namespaces=("shop",)), True),
        ([OTHER], DebugSettings(allowed_namespaces=("shop",)), False),
        ([OTHER], DebugSettings(endpoint_auth=False), True),
        ([], DebugSettings(endpoint_auth=False), False),
    ],
)
def test_is_trusted(identities: Sequence[str], settings: DebugSettings, trusted: bool) -> None:
    assert is_trusted(sources(build_mesh(), settings=settings), identities) is trusted


def refusal_of(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(Refused) as error:
        call()
    return error.value.status, error.value.text


def test_untrusted_callers_see_only_their_namespace(pages: Sources) -> None:
    assert visible_sources(pages, [SYSTEM]) is pages
    own_fleet = visible_sources(pages, [SHOP]).fleet
    assert own_fleet.version == FakeFleet.version
    assert [item.id for item in own_fleet.connections()] == ["tea-1.shop-3"]
    assert [
        refusal_of(call)
        for call in (
            own_fleet.push_all,
            lambda: own_fleet.disconnect("tea-1.shop-3"),
            own_fleet.cached_resources,
            own_fleet.clear_cache,
        )
    ] == [(403, "")] * 4
    assert isinstance(pages.fleet, FakeFleet)
    assert (pages.fleet.pushes, pages.fleet.disconnected, pages.fleet.cache_clears) == (0, [], 0)
    assert refusal_of(lambda: visible_sources(pages, [])) == (401, "")
    assert refusal_of(lambda: visible_sources(pages, ["nobody"])) == (403, "")
    for path in ("/debug/config_dump", "/debug/ndsz", "/debug/edsz"):
        assert [item.id for item in sources_for(pages, path, [OTHER]).fleet.connections()] == []
    assert refusal_of(lambda: sources_for(pages, "/debug/syncz", [SHOP])) == (403, "")
    assert sources_for(pages, "/debug/syncz", [SYSTEM]) is pages
