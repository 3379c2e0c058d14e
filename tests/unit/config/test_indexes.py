"""Under which buckets rows of tables are found again."""

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
    ("hosts", "found"), [((), ()), (("a.b", "c.*"), ()), (("a.b", "*.c"), (True,)), (("*",), (True,))]
)
def test_objects_of_wildcard_hosts_are_found_by_that(hosts: tuple[str, ...], found: tuple[bool, ...]) -> None:
    assert has_wildcard(KEY, Object(ROUTES, "shop", "a", VirtualService(hosts=hosts))) == found


@pytest.mark.parametrize(("host", "found"), [("a.b", ()), ("*.b", ("shop",)), ("*", ("shop",))])
def test_rules_of_wildcard_hosts_are_found_by_their_namespace(host: str, found: tuple[str, ...]) -> None:
    assert wildcard_rules(KEY, Object(RULE, "shop", "a", DestinationRule(host=host))) == found


@pytest.mark.parametrize(("names", "found"), [((), set()), (("*",), set()), ((".", "b", "c"), {"b", "c"})])
def test_objects_are_found_by_the_namespaces_that_they_are_exported_to_by_name(
    names: tuple[str, ...], found: set[str]
) -> None:
    assert exported_by_name(KEY, Object(RULE, "shop", "a", DestinationRule(host="a.b", export_to=names))) == found


def test_objects_are_found_by_what_they_delegate_to() -> None:
    http = (
        HTTPRoute(delegate=Delegate(name="b", namespace="other")),
        HTTPRoute(),
        HTTPRoute(delegate=Delegate(name="c")),
    )
    assert delegates(KEY, Object(ROUTES, "shop", "a", VirtualService(http=http))) == {
        ObjectKey("other", "b"),
        ObjectKey("shop", "c"),
    }
