"""Host names: wildcards, what covers what, which is closest, full names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilot.lib.hosts import bracketed, full_name, is_wildcard, matches, most_specific, specificity, subset_of, with_port


@pytest.mark.parametrize(
    ("host", "other", "expected"),
    [
        ("foo.com", "foo.com", True),
        ("foo.com", "bar.com", False),
        ("foo.com", "*.com", True),
        ("foo.com", "*", True),
        ("*.com", "foo.com", False),
        ("*.foo.com", "*.com", True),
        ("*.com", "*.foo.com", False),
        ("*.com", "*.com", True),
        ("foo.com", "*.foo.com", False),
        ("*", "*.com", False),
        ("a-x.foo.com", "*-x.foo.com", True),
    ],
)
def test_subset(host: str, other: str, expected: bool) -> None:
    assert subset_of(host, other) is expected


@pytest.mark.parametrize(
    ("host", "other", "expected"),
    [
        ("*.com", "foo.com", True),
        ("*.foo.com", "*.bar.com", False),
        ("*.foo.com", "foo.com", False),
        ("*", "*.com", True),
    ],
)
def test_overlap(host: str, other: str, expected: bool) -> None:
    assert matches(host, other) is expected
    assert matches(other, host) is expected


HOSTS = st.sampled_from(
    ["*", "*.com", "*.foo.com", "foo.com", "a.foo.com", "*a.foo.com", "bar.com", "*.bar.com", "com"]
)


@given(HOSTS, HOSTS)
def test_equal_sets_are_equal_names(host: str, other: str) -> None:
    assert (subset_of(host, other) and subset_of(other, host)) is (host == other)


@given(HOSTS, st.lists(HOSTS))
def test_most_specific_is_the_first_of_what_covers(host: str, candidates: list[str]) -> None:
    covering = [c for c in candidates if c == host or (is_wildcard(c) and subset_of(host, c))]
    exact = [c for c in covering if c == host]
    assert most_specific(host, candidates) == min(exact or covering, key=specificity, default=None)


def test_exact_names_before_wildcards_longer_before_shorter() -> None:
    hosts = ["*", "b.com", "*.com", "long.b.com", "a.com", "*.b.com"]
    assert sorted(hosts, key=specificity) == ["long.b.com", "a.com", "b.com", "*.b.com", "*.com", "*"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("reviews", "reviews.prod.svc.cluster.local"),
        ("reviews.test", "reviews.test"),
        ("*", "*"),
        ("", ""),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_full_names(host: str, expected: str) -> None:
    assert full_name(host, "prod", "cluster.local") == expected


def test_addresses_in_authorities() -> None:
    assert bracketed("fd00::1") == "[fd00::1]"
    assert with_port("fd00::1", 80) == "[fd00::1]:80"
    assert with_port("foo.com", 80) == "foo.com:80"
