"""Merging of DestinationRules for the same host."""

from __future__ import annotations

import pytest

from pilot.config.object import ObjectKey
from pilot.mesh.traffic.rule_pools import PooledRule, RuleDefaults, build_pools, merge_entries

A, B = frozenset({("app", "a")}), frozenset({("app", "b")})


def rule(name: str, *export_to: str, selector: frozenset[tuple[str, str]] | None = None) -> PooledRule:
    return PooledRule(ObjectKey("ns", name), frozenset(export_to), selector)


def merged_names(*rules: PooledRule, by_export: bool = True) -> list[str]:
    return ["+".join(key.name for key in entry.sources) for entry in merge_entries(rules, by_export)]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([rule("1"), rule("2")], ["1+2"]),
        ([rule("1", "*"), rule("2", "*")], ["1+2"]),
        ([rule("1", "*"), rule("2")], ["1", "2"]),
        ([rule("1", "x"), rule("2", "x", "y")], ["1+2"]),
        ([rule("1", "x", "y"), rule("2", "x")], ["1", "2"]),
        ([rule("1", selector=A), rule("2", selector=B)], ["1", "2"]),
        ([rule("1", selector=A), rule("2", selector=A)], ["1+2"]),
        ([rule("1", selector=A), rule("2")], ["1", "2"]),
        ([rule("1", selector=A), rule("2", ".")], ["1+2"]),
        ([rule("1", selector=A), rule("2", "*"), rule("3", "*")], ["1", "2+3"]),
        ([rule("1", selector=A), rule("2", selector=B), rule("3", selector=A)], ["1+3", "2"]),
        ([rule("1", selector=A), rule("2", "*"), rule("3", ".")], ["1+3", "2", "3"]),
        ([rule("1", "x"), rule("2", "y"), rule("3", "x", "y")], ["1+3", "2+3"]),
        ([rule("1", "x", "y"), rule("2", "x"), rule("3", "x", "y")], ["1+3", "2+3"]),
        ([rule("1", "x"), rule("2", "y"), rule("3", "x")], ["1+3", "2", "3"]),
    ],
)
def test_rules_are_merged_by_export_to(rules: list[PooledRule], expected: list[str]) -> None:
    assert merged_names(*rules) == expected


def test_all_rules_are_merged_when_exports_are_ignored() -> None:
    assert merged_names(rule("1", "*"), rule("2", "."), by_export=False) == ["1+2"]
    assert merged_names(rule("1", selector=A), rule("2"), by_export=False) == ["1+2", "2"]


@pytest.mark.parametrize(
    ("export_to", "local", "exported", "private"),
    [
        ((), True, True, False),
        (("*",), True, True, False),
        ((".",), True, False, True),
        (("ns",), True, False, True),
        (("other",), False, True, False),
        (("ns", "other"), True, True, False),
        (("~",), False, True, False),  # exported, but visible nowhere
    ],
)
def test_pools(export_to: tuple[str, ...], local: bool, exported: bool, private: bool) -> None:
    pools = build_pools([rule("1", *export_to)], "ns", RuleDefaults("ns", False, True))
    assert (bool(pools.local), bool(pools.exported), bool(pools.private)) == (local, exported, private)
    assert not build_pools([rule("1", *export_to)], "ns", RuleDefaults("root", False, True)).private
    if "~" in export_to:
        assert not any(e.visible_in("elsewhere") for e in pools.exported)


def test_mesh_default_makes_rules_private() -> None:
    pools = build_pools([rule("1")], "ns", RuleDefaults("ns", True, True))
    assert pools.local
    assert not pools.exported
    assert pools.private
