"""Host names: wildcards, specificity and full names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilot.lib.hosts import (
    HostMatcher,
    OverlappingHosts,
    bracketed,
    full_name,
    is_wildcard,
    matches,
    most_specific,
    specificity,
    subset_of,
    with_port,
)


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
def test_subset_of(host: str, other: str, expected: bool) -> None:
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
def test_matches(host: str, other: str, expected: bool) -> None:
    assert matches(host, other) is expected
    assert matches(other, host) is expected


HOSTS = st.sampled_from(
    ["*", "*.com", "*.foo.com", "foo.com", "a.foo.com", "*a.foo.com", "bar.com", "*.bar.com", "com"]
)


@given(HOSTS, HOSTS)
def test_mutual_subsets_are_equal(host: str, other: str) -> None:
    assert (subset_of(host, other) and subset_of(other, host)) is (host == other)


@given(HOSTS, st.lists(HOSTS))
def test_most_specific_covering_host(host: str, candidates: list[str]) -> None:
    covering = [c for c in candidates if c == host or (is_wildcard(c) and subset_of(host, c))]
    exact = [c for c in covering if c == host]
    assert most_specific(host, candidates) == min(exact or covering, key=specificity, default=None)
    many = {*candidates, *(f"*.other{i}" for i in range(200))}
    assert most_specific(host, many) == most_specific(host, candidates)


@given(HOSTS, st.lists(HOSTS))
def test_hosts_that_overlap(host: str, others: list[str]) -> None:
    assert OverlappingHosts(others).overlap(host) is any(matches(host, other) for other in others)


def test_thousands_of_hosts_are_compared_in_logarithmic_time() -> None:
    hosts = OverlappingHosts(f"h{i}.example.com" for i in range(100_000))
    assert all(hosts.overlap(f"*{i}.example.com") for i in range(100_000))
    assert not any(hosts.overlap(f"*.h{i}.example.com") for i in range(100_000))


def test_most_specific_of_many_wildcards_is_looked_up() -> None:
    wildcards = {f"*.h{i}.example.com" for i in range(50_000)}
    for i in range(20_000):
        assert most_specific(f"a.h{i}.example.com", wildcards) == f"*.h{i}.example.com"


def test_specificity_order() -> None:
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


def test_ipv6_addresses_are_bracketed() -> None:
    assert bracketed("fd00::1") == "[fd00::1]"
    assert with_port("fd00::1", 80) == "[fd00::1]:80"
    assert with_port("foo.com", 80) == "foo.com:80"


@pytest.mark.parametrize(
    ("host", "wildcards", "is_covered"),
    [
        ("x.a.b", ["*.b", "*.a.b"], True),
        ("*.a.b", ["*.b", "*.a.b"], True),
        ("b", [], True),
        ("a.c", [], False),
        ("*.c", [], False),
    ],
)
def test_host_set(host: str, wildcards: list[str], is_covered: bool) -> None:
    hosts = HostMatcher(["*.a.b", "*.b", "b"])
    assert hosts.wildcards_of(host) == wildcards
    assert hosts.covers(host) is is_covered


@pytest.mark.parametrize(
    ("wildcard", "covered"),
    [("*", ["b.a", "*.a.b", "b"]), ("*.b", ["*.a.b"]), ("*b", ["*.a.b", "b"]), ("*.c", [])],
)
def test_hosts_that_a_wildcard_matches(wildcard: str, covered: list[str]) -> None:
    assert sorted(OverlappingHosts(["*.a.b", "b", "b.a"]).covered_by(wildcard)) == sorted(covered)
