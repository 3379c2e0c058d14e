"""References to objects on the command line."""

from __future__ import annotations

import click
import pytest

from pilot.cli.ctl.findings import parse_suppression
from pilot.cli.ctl.object_reference import parse_objects
from pilot.config.catalogue import CATALOGUE


@pytest.mark.parametrize(
    ("arguments", "namespace", "expected"),
    [
        (["virtualservice/cart"], "shop", [("virtualservice", "shop", "cart")]),
        (["virtualservice/cart"], "", [("virtualservice", "", "cart")]),
        (["vs/shop/cart"], "", [("vs", "shop", "cart")]),
        (["vs/shop/cart", "dr/cart"], "shop", [("vs", "shop", "cart"), ("dr", "shop", "cart")]),
        (["virtualservice", "cart.shop"], "", [("virtualservice", "shop", "cart")]),
        (["virtualservice", "shop/cart"], "", [("virtualservice", "shop", "cart")]),
        (["virtualservice", "a.b.shop"], "", [("virtualservice", "shop", "a.b")]),
        (["gw/edge.example.com"], "shop", [("gw", "shop", "edge.example.com")]),
        (["svc/web.reviews"], "", [("svc", "reviews", "web")]),
        (["service/reviews/web"], "", [("service", "reviews", "web")]),
    ],
)
def test_forms_of_references(arguments: list[str], namespace: str, expected: list[tuple[str, str, str]]) -> None:
    assert parse_objects(arguments, namespace) == expected


@pytest.mark.parametrize("arguments", [["cart"], ["vs/"], ["/cart"], ["vs/a/b/c"], ["vs//cart"], ["vs", "a/b/c"], [""]])
def test_other_forms_are_rejected(arguments: list[str]) -> None:
    with pytest.raises(click.BadParameter, match=r"is not KIND/NAME, KIND/NAMESPACE/NAME or KIND NAME\.NAMESPACE"):
        parse_objects(arguments, "")


def test_two_namespaces_are_rejected() -> None:
    with pytest.raises(click.BadParameter, match="'vs/shop/cart' is in the namespace shop, and --namespace is other"):
        parse_objects(["vs/shop/cart"], "other")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("vs", "VirtualService"), ("dr", "DestinationRule"), ("gw", "Gateway"), ("se", "ServiceEntry")),
        *(("ap", "AuthorizationPolicy"), ("pa", "PeerAuthentication"), ("ra", "RequestAuthentication")),
        *(("svc", "Service"), ("Services", "Service"), ("destinationrules.networking.istio.io", "DestinationRule")),
    ],
)
def test_kinds_have_the_names_of_kubectl(text: str, expected: str) -> None:
    assert [kind.id.name for kind in CATALOGUE.named(text)] == [expected]
    assert parse_suppression(f"IST0101={text.partition('.')[0]}/a/b").kind == expected


def test_kinds_of_the_same_name_need_a_group() -> None:
    assert len(CATALOGUE.named("gateway")) == 2
    assert CATALOGUE.named("nothing") == []
