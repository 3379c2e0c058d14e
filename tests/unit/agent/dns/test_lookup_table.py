"""Lookup of names in the table of the control plane."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from pilot.agent.dns.lookup_table import LookupTable
from protos import nds_pb2


def table(search: tuple[str, ...] = (), **hosts: Any) -> LookupTable:
    names = nds_pb2.NameTable()
    names.table["books.shop.svc.cluster.local"].CopyFrom(
        nds_pb2.NameTable.NameInfo(
            ips=["10.96.0.1", "fd00::1"], registry="Kubernetes", shortname="books", namespace="shop"
        )
    )
    names.table["carts.other.svc.cluster.local"].CopyFrom(
        nds_pb2.NameTable.NameInfo(ips=["10.96.0.2"], registry="Kubernetes", shortname="carts", namespace="other")
    )
    names.table["far.shop.svc.elsewhere"].CopyFrom(
        nds_pb2.NameTable.NameInfo(ips=["10.96.0.3"], registry="Kubernetes", shortname="far", namespace="shop")
    )
    names.table["*.wild.example"].ips.append("240.0.0.1")
    names.table["Mixed.Example"].ips.extend(["bad", "240.0.0.2"])
    names.table["empty.example"].ips.append("bad")
    lookup_table = LookupTable("shop", "shop.svc.cluster.local", search)
    lookup_table.update([names.SerializeToString()])
    return lookup_table


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("books.shop.svc.cluster.local.", "10.96.0.1"),
        ("books.", "10.96.0.1"),
        ("books.shop.", "10.96.0.1"),
        ("books.shop.svc.", "10.96.0.1"),
        ("carts.other.", "10.96.0.2"),
        ("carts.", None),  # short names resolve in the local namespace
        ("far.", None),  # and only in the local domain
        ("far.shop.svc.elsewhere.", "10.96.0.3"),
        ("a.wild.example.", "240.0.0.1"),
        ("a.b.wild.example.", "240.0.0.1"),
        ("wild.example.", None),
        ("mixed.example.", "240.0.0.2"),
        ("empty.example.", None),
        ("unknown.", None),
    ],
)
def test_lookup_by_full_short_and_wildcard_names(name: str, first: str | None) -> None:
    addresses = table().find(name)
    assert (str(addresses[0]) if addresses else None) == first


def test_lookup_strips_search_domains() -> None:
    names = table(("shop.svc.cluster.local", "svc.cluster.local"))
    assert names.find("mixed.example.shop.svc.cluster.local.") == (ipaddress.ip_address("240.0.0.2"),)
    assert names.find("unknown.shop.svc.cluster.local.") is None


def test_invalid_table_is_rejected_and_the_old_one_stays() -> None:
    names = table()
    with pytest.raises(ValueError, match="invalid name table"):
        names.update([b"\xff"])
    names.update([])
    assert names.find("books.") is not None
    assert not LookupTable("shop", "").is_populated
