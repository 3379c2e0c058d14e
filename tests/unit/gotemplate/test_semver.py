"""Version constraints of semverCompare.

See https://github.com/Masterminds/semver#checking-version-constraints for the rules.
"""

from __future__ import annotations

import itertools

import pytest

from gotemplate.functions.semver import parse_version, satisfies

CONSTRAINTS: dict[str, tuple[str, str]] = {  # matching and other versions by constraint
    "1.2.3": ("1.2.3", "1.2.4 1.2.2 1.2.3-beta"),
    "=1.2.3": ("1.2.3", "1.2.4"),
    "1.2": ("1.2.0 1.2.9", "1.3.0 1.1.9"),
    "1": ("1.0.0 1.9.9", "2.0.0 0.9.9"),
    "!=1.2.3": ("1.2.4 1.2.2 1.2.3-beta", "1.2.3"),
    "!=1.2": ("1.3.0 1.1.9", "1.2.0 1.2.9"),
    "!=1": ("2.0.0 0.9.9", "1.0.0 1.9.9"),
    ">1.2.3": ("1.2.4 2.0.0", "1.2.3 1.2.2 1.3.0-beta"),
    ">1.2": ("1.3.0 2.0.0", "1.2.9 1.2.0"),
    ">1": ("2.0.0", "1.9.9 1.0.0"),
    ">=1.2.3": ("1.2.3 1.2.4", "1.2.2"),
    "=>1.2.3": ("1.2.3", "1.2.2"),
    ">=1.2": ("1.2.0 2.0.0", "1.1.9"),
    ">=1": ("1.0.0", "0.9.9"),
    "<1.2.3": ("1.2.2 0.0.0", "1.2.3 1.2.4"),
    "<1.2": ("1.1.9", "1.2.0"),
    "<1": ("0.9.9", "1.0.0"),
    "<=1.2.3": ("1.2.3 1.2.2", "1.2.4"),
    "=<1.2.3": ("1.2.3", "1.2.4"),
    "<=1.2": ("1.2.9 1.0.0", "1.3.0"),
    "<=1": ("1.9.9", "2.0.0"),
    "~1.2.3": ("1.2.3 1.2.9", "1.3.0 1.2.2"),
    "~1.2": ("1.2.0 1.2.9", "1.3.0 1.1.9"),
    "~1": ("1.0.0 1.9.9", "2.0.0"),
    "~>1.2.3": ("1.2.9", "1.3.0"),
    "^1.2.3": ("1.2.3 1.9.9", "2.0.0 1.2.2"),
    "^1.2": ("1.2.0 1.9.9", "2.0.0 1.1.9"),
    "^0.2.3": ("0.2.3 0.2.9", "0.3.0 0.2.2"),
    "^0.2": ("0.2.0 0.2.9", "0.3.0"),
    "^0.0.3": ("0.0.3", "0.0.4 0.0.2"),
    "^0.0": ("0.0.0 0.0.9", "0.1.0"),
    "^0": ("0.0.0 0.9.9", "1.0.0"),
    "1.2.x": ("1.2.0 1.2.9", "1.3.0"),
    "1.2.X": ("1.2.9", "1.3.0"),
    "1.*": ("1.0.0 1.9.9", "2.0.0"),
    "*": ("0.0.0 9.9.9", "1.0.0-beta"),
    ">=1.2.x": ("1.2.0 9.0.0", "1.1.9"),
    "<=1.x": ("1.9.9", "2.0.0"),
    ">=1.2.3-beta": ("1.2.3-beta 1.2.3-rc 1.2.3 1.3.0-alpha", "1.2.3-alpha 1.2.2"),
    "1.2.3-beta": ("1.2.3-beta", "1.2.3 1.2.3-beta.1"),
    ">1.2.3-beta": ("1.2.3 1.2.4", "1.2.3-beta 1.2.3-alpha"),
    "<=1.2.3-beta": ("1.2.3-beta 1.2.3-alpha 1.2.2", "1.2.3 1.2.3-rc"),
    "!=1.2.3-beta": ("1.2.3 1.2.3-rc", "1.2.3-beta"),
    "<1.2.3-beta": ("1.2.3-alpha 1.2.2", "1.2.3-beta 1.2.3"),
    ">=1.2, <1.4": ("1.2.0 1.3.9", "1.4.0 1.1.9"),
    ">=1.2 <1.4": ("1.3.0", "1.4.0"),
    "1.2 - 1.4": ("1.2.0 1.4.9 1.3.0", "1.5.0 1.1.9"),
    "1.2.0 - 1.4.5": ("1.2.0 1.4.5", "1.4.6 1.1.9"),
    "<1 || >=2.5, <3": ("0.9.0 2.5.0 2.9.9", "1.0.0 2.4.9 3.0.0"),
}


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_constraints(constraint: str) -> None:
    matching, others = (versions.split() for versions in CONSTRAINTS[constraint])
    assert [version for version in (*matching, *others) if satisfies(constraint, parse_version(version))] == matching


def test_version_order() -> None:
    ascending = (
        "0.9.0 1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0 1.0.1"
    )
    versions = [parse_version(text) for text in ascending.split()]
    for lower, higher in itertools.combinations(versions, 2):
        assert (lower < higher, higher < lower, lower == higher) == (True, False, False), (lower, higher)
    assert parse_version("1.0.0+a") == parse_version("v1")
    assert hash(parse_version("1.0.0+a")) == hash(parse_version("v1"))
    assert parse_version("1.0.0") != "1.0.0"


@pytest.mark.parametrize("constraint", ["", "x1", ">>1", "1.2.3.4", ">=1 || ", "1 2x"])
def test_invalid_constraints(constraint: str) -> None:
    with pytest.raises(ValueError, match="improper constraint: "):
        satisfies(constraint, parse_version("1.0.0"))


@pytest.mark.parametrize("text", ["", "a", "1.2.3.4", "1..2", "1.2.3-", "-1"])
def test_invalid_versions(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid Semantic Version"):
        parse_version(text)
