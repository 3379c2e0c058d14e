"""Hosts that a Sidecar imports and excludes."""

from __future__ import annotations

from pilot.mesh.scope.egress_hosts import HostSet


def test_services_are_matched_with_many_wildcards_in_linear_time() -> None:
    hosts = tuple(f"*.n{i}.example.com" for i in range(50_000))
    host_set = HostSet(hosts=hosts, excluded=tuple(f"x.n{i}.example.com" for i in range(50_000)))
    assert all(host_set.imports(f"a.n{i}.example.com") for i in range(50_000))
    assert not any(host_set.excludes(f"a.n{i}.example.com") for i in range(50_000))
    assert host_set.excludes("x.n7.example.com")


def test_wildcards_import_names_below_them() -> None:
    host_set = HostSet(hosts=("*.a.com", "b.com"), excluded=("*.c.a.com",))
    assert [host_set.imports(name) for name in ("x.a.com", "a.com", "b.com", "*.a.com", "*.x.a.com", "*.com")] == [
        True,
        False,
        True,
        True,
        True,
        False,
    ]
    assert [host_set.excludes(name) for name in ("x.c.a.com", "x.a.com")] == [True, False]
    assert not HostSet().imports("a.com")
