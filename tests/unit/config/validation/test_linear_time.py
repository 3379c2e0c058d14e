"""Values that took exponential or quadratic time to check: without linear checks, these tests do not end."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.problem import MAX_PROBLEMS, Problem, error
from pilot.config.validation.traffic import unreachable_routes
from pilot.config.validation.traffic.headers import check_format
from pilot.ingest import shape
from pilot.ingest.decode import decode_document
from pilot.lib import path_template
from pilot.lib.duration import parse_duration
from pilot.lib.format_string import is_known

pytestmark = pytest.mark.slow

N = 500_000
_ROUTE = [{"destination": {"host": "a.b"}}]


def _codes(kind: str, spec: dict[str, Any], api: str = "networking.istio.io/v1") -> set[str]:
    """Return the codes of the problems of an object, without that of objects that expand to too many resources."""
    plain = {"apiVersion": api, "kind": kind, "metadata": {"name": "a", "namespace": "n"}, "spec": spec}
    return {problem.code for problem in decode_document(plain).problems} - {"too-large"}


@pytest.mark.parametrize(
    "text",
    [
        '%A(["' + '"" ' * N + "x",
        "%A([" + '"" ' * N + "])",
        "%A(" * N,
        "%A(\\" * N,
        '%A([")%' * N,
        '%A(["" ' * N,
        "%A( " + " " * N + "[",
        "%" + " " * N,
    ],
)
def test_nested_header_format_is_rejected_in_linear_time(text: str) -> None:
    assert [p.code for p in check_format("", text, "bad-header-value")] == ["bad-header-value"]


@pytest.mark.parametrize("text", ["%REQ(a)% " * N, "%% " * N, '%A([ "a" , "b""c" ,])%', "no operator" * N])
def test_long_formats_are_read_to_their_end(text: str) -> None:
    assert {p.message[:4] for p in check_format("", text)} <= {"%A(["}


@pytest.mark.parametrize(
    "argument",
    [
        "COALESCE({" + '"operators"' * N + ")",
        "REQ(" + ")" * N + "x",
        "REQ(" + ") " * N + "x",
        "FILTER_STATE(a" + ":FIELD" * N + ":)",
        "COMMON_DURATION(" + "a:" * N + ")",
    ],
)
def test_operator_arguments_are_checked_in_linear_time(argument: str) -> None:
    assert not is_known(argument) or argument.startswith("FILTER_STATE")


def _routes(matches: list[dict[str, Any]]) -> dict[str, Any]:
    return {"hosts": ["a.b"], "http": [{"match": matches, "route": _ROUTE}]}


def test_prefixes_of_many_routes_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreachable_routes, "_covers", _never)
    assert not _codes("VirtualService", _routes([{"uri": {"prefix": f"/{n:06}"}} for n in range(30_000)]))


def _never(*_: object) -> bool:
    raise AssertionError


def test_conditions_of_many_routes_with_one_prefix_are_compared_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    comparisons = 0

    def count(*_: object) -> bool:
        nonlocal comparisons
        comparisons += 1
        return False

    monkeypatch.setattr(unreachable_routes, "_covers", count)
    assert not _codes(
        "VirtualService", _routes([{"uri": {"prefix": "/"}, "method": {"exact": str(n)}} for n in range(20_000)])
    )
    assert 0 < comparisons <= 20_000


def test_first_covering_match_is_reported() -> None:
    matches = [
        {"uri": {"prefix": "/a/b"}, "method": {"exact": "GET"}},
        {"uri": {"prefix": "/a"}, "method": {"exact": "GET"}},
        {"uri": {"prefix": "/a/b/c"}, "method": {"exact": "GET"}},
        {"uri": {"prefix": "/a/b/d"}, "method": {"exact": "PUT"}},
    ]
    plain = {"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "a"}}
    problems = decode_document({**plain, "spec": _routes(matches)}).problems
    assert [(p.path, p.message) for p in problems] == [
        ("spec.http[0].match[2]", "never reached: http[0].match[0] matches all of its requests")
    ]


@pytest.mark.parametrize(
    ("hosts", "codes"),
    [
        ([f"*.h{n}.c" for n in range(40_000)], set()),
        ([f"*.h{n}.c" for n in range(20_000)] + [f"h{n}.c" for n in range(20_000)], set()),
        ([f"h{n}.c" for n in range(40_000)] + ["*.c"], {"duplicate-host"}),
        (["*.c"] + [f"h{n}.c" for n in range(40_000)], {"duplicate-host", "more-problems"}),
        (["*.a.c", "b.c", "*b.c"], {"duplicate-host"}),
        (["*.a.c", "a.c", "*.b.c"], set()),
    ],
)
def test_hosts_are_not_compared_with_each_other(hosts: list[str], codes: set[str]) -> None:
    assert _codes("VirtualService", {"hosts": hosts, "http": [{"route": _ROUTE}]}) == codes


def test_server_names_are_not_compared_with_each_host() -> None:
    hosts = [f"*.h{n}.c" for n in range(20_000)]
    names = [f"a.h{n}.c" for n in range(20_000)]
    tls = [{"match": [{"sniHosts": names}], "route": _ROUTE}]
    assert not _codes("VirtualService", {"hosts": hosts, "tls": tls})
    tls[0]["match"][0]["sniHosts"] = [*names, "x.c"]
    assert _codes("VirtualService", {"hosts": hosts, "tls": tls}) == {"sni-not-of-host"}


def test_localities_are_not_compared_with_each_other() -> None:
    distribute = [{"from": f"r{n}", "to": {"a": 100}} for n in range(40_000)]
    setting = {"outlierDetection": {}, "loadBalancer": {"localityLbSetting": {"distribute": distribute}}}
    assert not _codes("DestinationRule", {"host": "a.b", "trafficPolicy": setting})
    distribute.append({"from": "r7/z", "to": {"a": 100}})
    assert _codes("DestinationRule", {"host": "a.b", "trafficPolicy": setting}) == {"bad-locality"}


@pytest.mark.parametrize(
    ("sizes", "codes"),
    [((5, 4_999_999, 101, 65537), set()), ((4_999_998,), {"bad-table-size"}), ((91,), {"bad-table-size"})],
)
def test_table_sizes_are_primes(sizes: tuple[int, ...], codes: set[str]) -> None:
    for size in sizes:
        balancer = {"consistentHash": {"httpHeaderName": "a", "maglev": {"tableSize": size}}}
        assert _codes("DestinationRule", {"host": "a.b", "trafficPolicy": {"loadBalancer": balancer}}) == codes


def test_tracing_entries_are_not_compared_with_each_other() -> None:
    tracing = [{"match": {"mode": "CLIENT"}}, *[{"match": {"mode": "SERVER"}}] * 50_000]
    assert _codes("Telemetry", {"tracing": tracing}, "telemetry.istio.io/v1") == {"no-effect", "more-problems"}
    assert not _codes("Telemetry", {"tracing": [tracing[0], tracing[1]]}, "telemetry.istio.io/v1")


def test_expressions_of_one_object_have_a_limit() -> None:
    logs = [{"providers": [{"name": "a"}], "filter": {"expression": "a" + " || a" * 1000}}] * 200
    assert _codes("Telemetry", {"accessLogging": logs}, "telemetry.istio.io/v1") == {"too-long"}


@pytest.mark.parametrize("length", ["1" * 5000, "9" * N, "129", "-1", ""])
def test_numbers_of_thousands_of_digits_are_problems(length: str) -> None:
    spec = {"hosts": ["a.b"], "addresses": [f"1.1.1.1/{length}"], "resolution": "STATIC"}
    assert _codes("ServiceEntry", {**spec, "ports": [{"number": 80, "name": "http"}]}) == {"bad-address"}
    ingress = [{"port": {"number": 80, "protocol": "HTTP"}, "defaultEndpoint": f"127.0.0.1:{length}80000"}]
    assert _codes("Sidecar", {"ingress": ingress}) == {"bad-port"}


def test_long_duration_is_invalid() -> None:
    with pytest.raises(ValueError, match="longer than 128 characters"):
        parse_duration("1s" * N)


def test_number_of_listed_problems_is_limited() -> None:
    matches = [{"uri": {"prefix": "/a"}}] * 10_000
    plain = {"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "a"}}
    decoded = decode_document({**plain, "spec": _routes(matches)})
    assert len(decoded.problems) == MAX_PROBLEMS + 1
    assert decoded.entries
    decoded = decode_document({**plain, "spec": _routes([*matches, {"port": 99_999}])})
    assert [p.code for p in decoded.problems[-2:]] == ["unreachable-match", "more-problems"]
    assert not decoded.entries
    assert "bad-port" in {p.code for p in decoded.problems}


def test_long_key_is_not_repeated_in_the_paths_of_its_problems() -> None:
    matches = [{"headers": {"a" * N: {f"f{n}": 1 for n in range(100)}}}]
    plain = {"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "a"}}
    problems = decode_document({**plain, "spec": _routes(matches)}).problems
    assert len(problems) == 100
    assert sum(len(problem.path) for problem in problems) < 100_000


@pytest.mark.parametrize(
    "spec",
    [
        {"egress": [1] * N},
        {"egress": [{"hosts": [1]}] * N},
        {"workloadSelector": {"labels": {f"k{n}": 1 for n in range(N)}}},
        {f"unknown{n}": 1 for n in range(N)},
    ],
)
def test_mismatches_after_the_first_thousand_are_not_listed(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = 0

    def count(*arguments: Any) -> Problem:
        nonlocal listed
        listed += 1
        return error(*arguments)

    monkeypatch.setattr(shape, "error", count)
    assert _codes("Sidecar", spec) <= {"wrong-type", "unknown-field", "more-problems"}
    assert listed <= shape.MAX_MISMATCHES


def test_template_is_searched_for_wildcards_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = 0

    def count(path: str) -> bool:
        nonlocal searches
        searches += 1
        return False

    monkeypatch.setattr(path_template, "is_template", count)
    assert not path_template.find_template_fault("/a" * N)
    assert searches == 1
