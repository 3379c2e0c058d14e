"""What the text of a problem says, and what is known of it for programs."""

from __future__ import annotations

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem, Severity, below, each, error, plain_problem, warning

RULE = ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "shop", "web")
CLASS = ObjectRef(GroupKind("gateway.networking.k8s.io", "GatewayClass"), "", "istio")
NAMED = f"{GroupKind(NETWORKING, 'DestinationRule')} shop/web"


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem(code="c", message="m"), "error c: m"),
        (Problem(code="c", path="a.b", message="m"), "error c: a.b: m"),
        (Problem(code="c", object=RULE, message="m", severity=Severity.WARNING), f"warning c: {NAMED}: m"),
        (
            Problem(code="c", object=RULE, path="spec.host", message="m", file="a.yaml", line=7),
            f"a.yaml:7: error c: {NAMED} spec.host: m",
        ),
        (Problem(code="c", message="m", file="a.yaml", severity=Severity.NOTICE), "a.yaml: notice c: m"),
        (Problem(code="c", object=CLASS, message="m"), f"error c: {CLASS.kind} istio: m"),
    ],
)
def test_the_text_of_a_problem(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_what_is_known_of_a_problem_is_there_without_what_is_not() -> None:
    assert plain_problem(Problem(code="c", message="m")) == {"severity": "error", "code": "c", "message": "m"}
    whole = Problem(code="c", object=RULE, path="spec", message="m", severity=Severity.WARNING, file="a.yaml", line=3)
    assert plain_problem(whole) == {
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


def test_paths_are_completed_from_the_inside() -> None:
    found = [error("c", "", "m"), warning("c", "x", "m"), error("c", "[0].y", "m")]
    assert [(p.path, p.severity) for p in below("spec", found)] == [
        ("spec", Severity.ERROR),
        ("spec.x", Severity.WARNING),
        ("spec[0].y", Severity.ERROR),
    ]
    assert [p.path for p in each("hosts", ("a", "b"), lambda text: [error("c", text, "m")])] == [
        "hosts[0].a",
        "hosts[1].b",
    ]
