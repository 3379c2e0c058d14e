"""Merge of statuses with those of other controllers."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.controllers.status_merge import StatusContext, merge_conditions, merge_status

Plain = dict[str, Any]
CONTEXT = StatusContext(7, "now", ["ours.io/c", "ours.io/mesh"])


def condition(kind: str, status: str, time: str = "", **more: Any) -> Plain:
    metadata = {"observedGeneration": 7, "lastTransitionTime": time} if time else {}
    return {"type": kind, "status": status, **metadata, **more}


@pytest.mark.parametrize(
    ("old", "desired", "merged"),
    [
        ([], [condition("Accepted", "True")], [condition("Accepted", "True", "now")]),
        (
            [condition("Accepted", "True", "then", reason="Old")],
            [condition("Accepted", "True", reason="New")],
            [condition("Accepted", "True", "then", reason="New")],
        ),
        (
            [condition("Accepted", "False", "then")],
            [condition("Accepted", "True")],
            [condition("Accepted", "True", "now")],
        ),
        ([condition("Accepted", "True")], [condition("Accepted", "True")], [condition("Accepted", "True", "now")]),
        (
            [condition("Theirs", "True", "then"), condition("Programmed", "True", "then")],
            [],
            [condition("Theirs", "True", "then")],
        ),
        (
            [condition("Programmed", "True", "then"), condition("Theirs", "x"), condition("Accepted", "True", "then")],
            [condition("ResolvedRefs", "True"), condition("Accepted", "True"), condition("Programmed", "False")],
            [
                condition("Programmed", "False", "now"),
                condition("Theirs", "x"),
                condition("Accepted", "True", "then"),
                condition("ResolvedRefs", "True", "now"),
            ],
        ),
    ],
    ids=["new", "same status", "changed status", "no time", "removed", "order"],
)
def test_merge_of_conditions(old: list[Plain], desired: list[Plain], merged: list[Plain]) -> None:
    assert merge_conditions(old, desired, CONTEXT) == merged
    assert merge_status({"conditions": old}, {"conditions": desired}, CONTEXT) == {"conditions": merged}
    assert merge_conditions(merged, desired, CONTEXT) == merged, "a merged status stays unchanged"


def entry(controller: str, time: str = "", **ref: Any) -> Plain:
    return {"parentRef": ref, "controllerName": controller, "conditions": [condition("Accepted", "True", time)]}


def test_merge_of_parents() -> None:
    old = [
        entry("ours.io/c", "then", name="gone"),
        entry("theirs.io/c", name="a"),
        entry("ours.io/c", "then", name="a"),
        entry("ours.io/mesh", "then", name="a"),
    ]
    desired = [
        entry("ours.io/mesh", name="b", kind="Service", group=""),
        entry("ours.io/c", name="a", kind="Gateway", group="gateway.networking.k8s.io"),
        entry("ours.io/c", name="a", sectionName="x"),
        entry("ours.io/c", name="a", port=1),
    ]
    assert merge_status({"parents": old, "other": 1}, {"parents": desired}, CONTEXT) == {
        "parents": [
            entry("theirs.io/c", name="a"),
            entry("ours.io/c", "then", name="a", kind="Gateway", group="gateway.networking.k8s.io"),
            entry("ours.io/mesh", "now", name="b", kind="Service", group=""),
            entry("ours.io/c", "now", name="a", sectionName="x"),
            entry("ours.io/c", "now", name="a", port=1),
        ]
    }
    assert merge_status({}, {"parents": desired[:1]}, CONTEXT) == {
        "parents": [entry("ours.io/mesh", "now", name="b", kind="Service", group="")]
    }


def test_ancestors_are_limited_to_sixteen() -> None:
    desired = [{"ancestorRef": {"name": str(n)}, "controllerName": "ours.io/c", "conditions": []} for n in range(17)]
    assert merge_status({}, {"ancestors": desired}, CONTEXT) == {"ancestors": desired[:16]}
    parents = [{"parentRef": {"name": str(n)}, "controllerName": "ours.io/c", "conditions": []} for n in range(17)]
    assert merge_status({}, {"parents": parents}, CONTEXT) == {"parents": parents}


def test_merge_of_listeners() -> None:
    old = [
        {"name": "a", "attachedRoutes": 1, "conditions": [condition("Accepted", "True", "then")]},
        {"name": "gone", "conditions": []},
        {"name": "c"},
    ]
    desired = [{"name": name, "attachedRoutes": 2, "conditions": [condition("Accepted", "True")]} for name in "bca"]
    merged = [
        {"name": n, "attachedRoutes": 2, "conditions": [condition("Accepted", "True", at)]}
        for n, at in (("b", "now"), ("c", "now"), ("a", "then"))
    ]
    assert merge_status({"listeners": old}, {"listeners": desired, "addresses": [1]}, CONTEXT) == {
        "listeners": merged,
        "addresses": [1],
    }
