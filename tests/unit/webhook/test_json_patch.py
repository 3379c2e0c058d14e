"""Tests of JSON patches."""

from __future__ import annotations

from webhook.pod.json_patch import apply, differences


def test_json_patch_has_only_differences() -> None:
    old = {"a": {"b/c": 1, "d": [1], "e": {}}, "f": 1, "t": 1}
    new = {"a": {"b/c": 2, "d": [1], "g~": 3}, "f": 1, "t": True}
    result = list(differences(old, new))
    assert {(o["op"], o["path"]) for o in result} == {
        ("replace", "/a/b~1c"),
        ("remove", "/a/e"),
        ("add", "/a/g~0"),
        ("replace", "/t"),
    }
    assert apply(old, result) == new
