"""Objects whose selectors select the same workloads."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.object import ObjectKey
from pilot.derive import run_steps
from pilot.mesh.analysis.overlap import MAX_COMPARED, MAX_EARLIER, Labels, Selecting, find_overlaps


def overlaps(objects: Mapping[str, Labels], *workloads: Labels) -> dict[str, list[str]]:
    selecting = [Selecting(ObjectKey("a", name), labels) for name, labels in objects.items()]
    listed = run_steps(find_overlaps(selecting, workloads))
    return {key.name: [other.name for other in earlier] for key, earlier in listed.items()}


def labels(**pairs: str) -> Labels:
    return frozenset(pairs.items())


def test_earlier_objects_for_a_workload_are_listed_in_order() -> None:
    objects = {
        "app": labels(app="x"),
        "all": labels(),
        "other": labels(app="y"),
        "version": labels(version="v1"),
        "both": labels(app="x", version="v1"),
    }
    assert overlaps(objects, labels(app="x", version="v1")) == {
        "all": ["app"],
        "version": ["app", "all"],
        "both": ["app", "all", "version"],
    }
    assert overlaps(objects, labels(app="y"), labels(version="v1")) == {"other": ["all"], "version": ["all"]}


def test_objects_for_different_workloads_do_not_overlap() -> None:
    objects = {"x": labels(app="x"), "y": labels(app="y")}
    assert overlaps(objects, labels(app="x"), labels(app="y")) == {}
    assert overlaps(objects, labels(app="x", version="v1")) == {}


def test_number_of_listed_and_compared_objects_is_limited() -> None:
    objects = {f"o{n:03}": labels(app="x") for n in range(2 * MAX_COMPARED)}
    listed = overlaps(objects, labels(app="x"))
    assert listed["o005"] == [f"o{n:03}" for n in range(5)]
    assert listed[f"o{MAX_COMPARED - 1:03}"] == [f"o{n:03}" for n in range(MAX_EARLIER)]
    assert f"o{MAX_COMPARED:03}" not in listed
