"""Mappings that share most items with a base mapping."""

from __future__ import annotations

from pilot.derive.patched import Patched, patch

MANY = {f"k{n}": n for n in range(100)}


def test_patched_mapping_reads_like_a_dict() -> None:
    mapping, expected = patch(MANY, {"k7": -7}), {**MANY, "k7": -7}
    assert isinstance(mapping, Patched)
    assert mapping == expected
    assert (mapping["k7"], mapping.get("k8"), mapping.get("none"), mapping.get("none", 3)) == (-7, 8, None, 3)
    assert ("k7" in mapping, "none" in mapping, len(mapping)) == (True, False, 100)
    assert list(mapping) == list(mapping.keys()) == list(expected)
    assert list(mapping.values()) == list(expected.values())
    assert list(mapping.items()) == list(expected.items())
    assert repr(mapping) == repr(expected)
    assert MANY["k7"] == 7


def test_patches_share_the_base_up_to_the_square_root_of_its_size() -> None:
    mapping = patch(MANY, {})
    for n in range(10):
        mapping = patch(mapping, {f"k{n}": -n})
        assert isinstance(mapping, Patched)
        assert mapping.base is MANY
    mapping = patch(mapping, {"k10": -10})
    assert mapping == {key: -n if n <= 10 else n for key, n in MANY.items()}
    assert isinstance(mapping, dict)


def test_fully_read_mapping_becomes_the_next_base() -> None:
    first = patch(MANY, {"k1": -1})
    assert sum(first.values()) == sum(MANY.values()) - 2
    second = patch(first, {"k2": -2})
    assert isinstance(second, Patched)
    assert second.base is not MANY
    assert (first["k2"], second["k1"], second["k2"]) == (2, -1, -2)
