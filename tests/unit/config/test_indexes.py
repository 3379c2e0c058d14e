"""Index functions of tables."""

from __future__ import annotations

import pytest

from pilot.config.group_kind import GroupKind
from pilot.config.indexes import delegates, exported_by_name, has_wildcard, wildcard_rules
from pilot.config.networking.destination_rule import DestinationRule
from pilot.config.networking.virtual_service import Delegate, HTTPRoute, VirtualService
from pilot.config.object import Object, ObjectKey

KEY = ObjectKey("shop", "a")
RULE, ROUTES = (GroupKind("networking.istio.io", kind) for kind in ("DestinationRule", "VirtualService"))


@pytest.mark.parametrize(
    ("hosts", "expected"), [((), ()), (("a.b", "c.*"), ()), (("a.b", "*.c"), (True,)), (("*",), (True,))]
)
def test_wildcard_host_index(hosts: tuple[str, ...], expected: tuple[bool, ...]) -> None:
    assert has_wildcard(KEY, Object(ROUTES, "shop", "a", VirtualService(hosts=hosts))) == expected


@pytest.mark.parametrize(("host", "expected"), [("a.b", ()), ("*.b", ("shop",)), ("*", ("shop",))])
def test_wildcard_rule_index(host: str, expected: tuple[str, ...]) -> None:
    assert wildcard_rules(KEY, Object(RULE, "shop", "a", DestinationRule(host=host))) == expected


@pytest.mark.parametrize(("names", "expected"), [((), set()), (("*",), set()), ((".", "b", "c"), {"b", "c"})])
def test_export_namespace_index(names: tuple[str, ...], expected: set[str]) -> None:
    assert exported_by_name(KEY, Object(RULE, "shop", "a", DestinationRule(host="a.b", export_to=names))) == expected


def test_delegate_index() -> None:
    http = (
        HTTPRoute(delegate=Delegate(name="b", namespace="other")),
        HTTPRoute(),
        HTTPRoute(delegate=Delegate(name="c")),
    )
    assert delegates(KEY, Object(ROUTES, "shop", "a", VirtualService(http=http))) == {
        ObjectKey("other", "b"),
        ObjectKey("shop", "c"),
    }
