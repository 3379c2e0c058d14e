"""Text and plain data of problems."""

from __future__ import annotations

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem, Severity, below, each, error, info, plain_problem, warning

RULE = ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "shop", "web")
CLASS = ObjectRef(GroupKind("gateway.networking.k8s.io", "GatewayClass"), "", "istio")
RULE_TEXT = f"{GroupKind(NETWORKING, 'DestinationRule')} shop/web"


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem(code="c", message="m"), "error c: m"),
        (Problem(code="c", path="a.b", message="m"), "error c: a.b: m"),
        (Problem(code="c", object=RULE, message="m", severity=Severity.WARNING), f"warning c: {RULE_TEXT}: m"),
        (
            Problem(code="c", object=RULE, path="spec.host", message="m", file="a.yaml", line=7),
            f"a.yaml:7: error c: {RULE_TEXT} spec.host: m",
        ),
        (Problem(code="c", message="m", file="a.yaml", severity=Severity.INFO), "a.yaml: info c: m"),
        (Problem(code="c", object=CLASS, message="m"), f"error c: {CLASS.kind} istio: m"),
    ],
)
def test_problem_text(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_plain_problem_omits_empty_fields() -> None:
    assert plain_problem(Problem(code="c", message="m")) == {"severity": "error", "code": "c", "message": "m"}
    problem = Problem(code="c", object=RULE, path="spec", message="m", severity=Severity.WARNING, file="a.yaml", line=3)
    assert plain_problem(problem) == {
        "severity": "warning",
        "code": "c",
        "group": NETWORKING,
        "kind": "DestinationRule",
        "namespace": "shop",
        "name": "web",
        "path": "spec",
        "file": "a.yaml",
        "line": 3,
        "message": "m",
    }


def test_paths_are_prefixed() -> None:
    problems = [error("c", "", "m"), warning("c", "x", "m"), error("c", "[0].y", "m")]
    assert [(p.path, p.severity) for p in below("spec", problems)] == [
        ("spec", Severity.ERROR),
        ("spec.x", Severity.WARNING),
        ("spec[0].y", Severity.ERROR),
    ]
    assert [p.path for p in each("hosts", ("a", "b"), lambda text: [error("c", text, "m")])] == [
        "hosts[0].a",
        "hosts[1].b",
    ]


def test_key_or_value_of_a_megabyte_is_cut_in_problems() -> None:
    value = "x" * 1_000_000
    for make in (error, warning, info):
        problem = make("bad-host", value, f"{value!r} is not a domain name")
        assert problem.path == "x" * 2000 + "… (998000 more characters)"
        assert problem.message == "'" + "x" * 1999 + "… (998023 more characters)"
