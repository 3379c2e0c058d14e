"""Suggestions for misspelt words."""

from __future__ import annotations

import pytest

from pilot.lib.suggestion import LONGEST, closest, did_you_mean, suggest_likely

NAMES = ("http", "tls", "hosts", "VirtualService")


@pytest.mark.parametrize(
    ("word", "name"),
    [("htttp", "http"), ("HTTP", "http"), ("virtualservices", "VirtualService"), ("gateways", ""), ("h" * 100, "")],
)
def test_most_similar_name_is_suggested(word: str, name: str) -> None:
    assert closest(word, NAMES) == name


def test_long_words_are_not_compared() -> None:
    assert closest("a" * (LONGEST + 1), ["a" * (LONGEST + 2)]) == ""


def test_suggestion_is_a_question() -> None:
    assert did_you_mean("hots", NAMES, "--") == "; did you mean --hosts?"
    assert did_you_mean("x", NAMES) == ""


def test_equally_similar_names_are_all_suggested() -> None:
    assert did_you_mean("AUTH", ("AUTHZ", "STATS", "AUTHN")) == "; did you mean AUTHN or AUTHZ?"
    assert did_you_mean("v", ("v1", "v2", "v3", "v4")) == ""
    assert did_you_mean("vvv", ("vvv3", "vvv1", "vvv2")) == "; did you mean vvv1, vvv2 or vvv3?"


def test_similar_names_are_suggested_from_many() -> None:
    names = [f"reviewer-{number}" for number in range(1000)] + ["reviews", "details"]
    assert suggest_likely("reviws", names) == "; did you mean reviews?"
    assert suggest_likely("eviews", names, "shop/{}") == "; did you mean shop/reviews?"
    assert suggest_likely("cart", names) == suggest_likely("", names) == ""
