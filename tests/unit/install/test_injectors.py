"""Injection webhooks, their selectors and conflicts."""

from __future__ import annotations

import pytest

from pilot.install.injectors import NEVER, deactivated, injection_conflicts, is_injector, revision_of, selects, tag_of
from pilot.install.installation_labels import REVISION
from tests.unit.install.labelled_cluster import ROLE, Plain, injector, make_object

ENABLED: Plain = {"matchLabels": {"istio-injection": "enabled"}}


def test_injectors() -> None:
    assert [
        is_injector(plain) for plain in (injector("a"), {**injector("a"), "kind": "ValidatingWebhookConfiguration"})
    ] == [True, False]
    assert not is_injector({**injector("a"), "webhooks": [{"name": "x.example"}]})
    assert not is_injector({**injector("a"), "webhooks": None})
    assert [(revision_of(p), tag_of(p)) for p in (injector("a"), injector("b", "r2", "prod"))] == [
        ("default", ""),
        ("r2", "prod"),
    ]
    assert deactivated(injector("a", namespaceSelector=ENABLED))["webhooks"] == [
        {"name": "rev.namespace.sidecar-injector.istio.io", "namespaceSelector": NEVER, "objectSelector": NEVER}
    ]


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ["a", "b"], {"x": "b"}, True),
        ("In", ["a"], {"x": "b"}, False),
        ("In", ["a"], {}, False),
        ("NotIn", ["a"], {"x": "b"}, True),
        ("NotIn", ["a"], {"x": "a"}, False),
        ("NotIn", ["a"], {}, True),
        ("Exists", None, {"x": ""}, True),
        ("Exists", None, {}, False),
        ("DoesNotExist", None, {}, True),
        ("DoesNotExist", None, {"x": "a"}, False),
        ("Sometimes", None, {"x": "a"}, False),
    ],
)
def test_selectors(operator: str, values: list[str] | None, labels: dict[str, str], expected: bool) -> None:
    expression = {"key": "x", "operator": operator, **({"values": values} if values is not None else {})}
    assert selects({"matchExpressions": [expression]}, labels) is expected
    assert selects({"matchLabels": {"y": "1"}, "matchExpressions": [expression]}, {**labels, "y": "1"}) is expected
    assert not selects({"matchLabels": {"y": "1"}, "matchExpressions": [expression]}, labels)
    assert selects({}, labels)


@pytest.mark.parametrize(
    ("ours", "theirs", "description"),
    [
        (ENABLED, ENABLED, "pods without injection labels in namespaces labelled istio-injection=enabled"),
        (
            ENABLED,
            {"matchLabels": {REVISION: "r2"}},
            f"pods without injection labels in namespaces labelled istio-injection=enabled, {REVISION}=r2",
        ),
        (ENABLED, {"matchLabels": {"istio-injection": "disabled"}}, ""),
        ({}, {}, "pods without injection labels in namespaces without injection labels"),
        (ENABLED, NEVER, ""),
    ],
)
def test_injection_conflicts(ours: Plain, theirs: Plain, description: str) -> None:
    conflicts = injection_conflicts(
        [injector("one", namespaceSelector=ours), make_object(ROLE, "r")],
        [make_object(ROLE, "r"), injector("two", "r2", namespaceSelector=theirs)],
    )
    assert conflicts == ([f"one and two (revision r2) would both inject {description}"] if description else [])
