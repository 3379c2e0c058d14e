"""Tests of the explanations of differences between istiod and this control plane."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from bench.explanations import EXPLANATIONS, Change, explanation

DIFFERENCES = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "differences.md").read_text()


@pytest.mark.parametrize("row", sorted({e.row for e in EXPLANATIONS}))
def test_every_explanation_is_a_row_of_the_document(row: str) -> None:
    assert f"\n| {row}" in DIFFERENCES


def _entry(name: str, addresses: list[str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "a"}
    return {"kind": "ServiceEntry", "metadata": metadata, "spec": {"hosts": ["x.com"], "addresses": addresses}}


def _routes(*domains: list[str]) -> dict[str, Any]:
    return {"virtualHosts": [{"name": str(i), "domains": d} for i, d in enumerate(domains)]}


@pytest.mark.parametrize(
    ("theirs", "ours", "row"),
    [
        (_routes(["a", "10.0.0.1"], ["b"]), _routes(["a"], ["b", "10.0.0.1"]), "several services with the same port"),
        (_routes(["a", "[fd00::1]"]), _routes(["a", "10.0.0.2"]), "a ServiceEntry has several addresses"),
        (_routes(["a", "[fd00::1]"]), _routes(["a", "10.0.0.3"]), ""),
        (_routes(["a", "b"]), _routes(["a"]), ""),
    ],
)
def test_domains(theirs: Any, ours: Any, row: str) -> None:
    change = Change([_entry("e", ["10.0.0.2/32", "fd00::1"])], theirs, ours)
    seen = explanation("sidecar RDS virtualHosts[].domains[]", change)
    assert bool(row) == bool(seen)
    assert seen.startswith(row)


@pytest.mark.parametrize(("entries", "explained"), [(1, False), (2, True)])
@pytest.mark.parametrize("text", ["x.com", "y.com"])
def test_shared_hosts(entries: int, explained: bool, text: str) -> None:
    change = Change([_entry(str(i), []) for i in range(entries)], {}, {}, [f"outbound|80||{text}: 1 paths"])
    assert bool(explanation("sidecar CDS type", change)) == (explained and text == "x.com")


@pytest.mark.parametrize(("hosts", "explained"), [(["a/x.com"], True), (["a/x.com", "b/*"], False)])
def test_exact_hosts_of_sidecars(hosts: list[str], explained: bool) -> None:
    sidecar = {"kind": "Sidecar", "metadata": {}, "spec": {"egress": [{"hosts": hosts}]}}
    change = Change([_entry("e", ["10.0.0.1", "10.0.0.2"]), sidecar], None, {"cluster": "outbound|80||x.com"})
    assert bool(explanation("sidecar LDS surplus IP", change)) == explained


@pytest.mark.parametrize(("name", "explained"), [("0.0.0.0_443", True), ("0.0.0.0_4443", False)])
def test_ports_of_shared_hosts(name: str, explained: bool) -> None:
    entry = _entry("e", [])
    entry["spec"]["ports"] = [{"number": 443}]
    change = Change([entry, _entry("f", [])], None, {"name": name}, name=name)
    assert bool(explanation("sidecar LDS surplus IP", change)) == explained


@pytest.mark.parametrize(("theirs", "ours", "explained"), [(2, 1, True), (1, 1, False), (2, 2, False)])
def test_repeated_matches_of_filter_chains(theirs: int, ours: int, explained: bool) -> None:
    sides = [{"filterChains": [{"filterChainMatch": {"serverNames": ["x.com"]}}] * n} for n in (theirs, ours)]
    assert bool(explanation("sidecar LDS filterChains[].name", Change((), *sides))) == explained
