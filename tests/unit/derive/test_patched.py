"""Mappings that are made of others with few items changed."""

from __future__ import annotations

from pilot.derive.patched import Patched, patch

MANY = {f"k{n}": n for n in range(100)}


def test_a_patched_mapping_reads_like_the_dict_that_it_stands_for() -> None:
    found, meant = patch(MANY, {"k7": -7}), {**MANY, "k7": -7}
    assert isinstance(found, Patched)
    assert found == meant
    assert (found["k7"], found.get("k8"), found.get("none"), found.get("none", 3)) == (-7, 8, None, 3)
    assert ("k7" in found, "none" in found, len(found)) == (True, False, 100)
    assert list(found) == list(found.keys()) == list(meant)
    assert list(found.values()) == list(meant.values())
    assert list(found.items()) == list(meant.items())
    assert repr(found) == repr(meant)
    assert MANY["k7"] == 7


def test_changes_share_what_they_stand_on_until_there_are_as_many_as_the_square_root() -> None:
    found = patch(MANY, {})
    for n in range(10):
        found = patch(found, {f"k{n}": -n})
        assert isinstance(found, Patched)
        assert found.base is MANY
    found = patch(found, {"k10": -10})
    assert found == {key: -n if n <= 10 else n for key, n in MANY.items()}
    assert isinstance(found, dict)


def test_one_that_was_read_as_a_whole_is_what_the_next_stands_on_and_itself_stays() -> None:
    first = patch(MANY, {"k1": -1})
    assert sum(first.values()) == sum(MANY.values()) - 2
    second = patch(first, {"k2": -2})
    assert isinstance(second, Patched)
    assert second.base is not MANY
    assert (first["k2"], second["k1"], second["k2"]) == (2, -1, -2)
