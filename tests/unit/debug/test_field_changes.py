"""The fields in which two versions of an object differ."""

from __future__ import annotations

import pytest

from pilot.debug.field_changes import MAX_ENDPOINTS, MAX_FIELDS, MAX_PATH, MAX_VALUE, field_changes
from testing.mesh.objects import Plain, at, endpoint_slice, make
from testing.mesh.world import rows_of


def changes(old: Plain, new: Plain) -> list[tuple[str, ...]]:
    ((_, before),), ((_, after),) = rows_of([old]).items(), rows_of([new]).items()
    return [tuple(change) for change in field_changes(before, after)]


def route(http: str, **metadata: Plain) -> Plain:
    plain = make("VirtualService", "r", f"{{hosts: [web], http: [{http}]}}")
    plain["metadata"] |= metadata
    return plain


TO_WEB = "route: [{destination: {host: web}}]"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (f"{{{TO_WEB}}}", f"{{{TO_WEB}}}", []),
        (f"{{{TO_WEB}, timeout: 5s}}", f"{{{TO_WEB}, timeout: 1s}}", [("spec.http[0].timeout", "5s", "1s")]),
        (f"{{{TO_WEB}}}", f"{{{TO_WEB}, timeout: 1s}}", [("spec.http[0].timeout", "", "1s")]),
        (
            f"{{{TO_WEB}}}",
            "{route: [{destination: {host: shop, subset: v1}}]}",
            [
                ("spec.http[0].route[0].destination.host", "web", "shop"),
                ("spec.http[0].route[0].destination.subset", "", "v1"),
            ],
        ),
        (
            f"{{{TO_WEB}}}",
            f"{{{TO_WEB}}}, {{name: last, {TO_WEB}}}",
            [("spec.http[1]", "", "{name: last, route: [{destination: {host: web}}]}")],
        ),
    ],
)
def test_innermost_fields_that_differ_have_both_values(old: str, new: str, expected: list[tuple[str, ...]]) -> None:
    assert changes(route(old), route(new)) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            [at("10.0.0.1")],
            [at("10.0.0.1", conditions="{ready: false}")],
            [("endpoints[10.0.0.1].conditions.ready", "true", "false")],
        ),
        (
            [at("10.0.0.1"), at("10.0.0.2")],
            [at("10.0.0.3", conditions="{ready: false}"), at("10.0.0.2")],
            [("endpoints[10.0.0.3]", "absent", "not ready"), ("endpoints[10.0.0.1]", "ready", "absent")],
        ),
        ([at("10.0.0.1"), at("10.0.0.2")], [at("10.0.0.2"), at("10.0.0.1")], []),
        (
            [at(f"10.0.{n // 256}.{n % 256}") for n in range(MAX_ENDPOINTS + 1)],
            [],
            [("endpoints[0]", "{addresses: [10.0.0.0], conditions: {ready: true}}", "")],
        ),
    ],
)
def test_endpoints_are_compared_by_address(old: list[str], new: list[str], expected: list[tuple[str, ...]]) -> None:
    assert changes(endpoint_slice("web", *old), endpoint_slice("web", *new))[: max(1, len(expected))] == expected


def test_labels_are_compared_too() -> None:
    old, new = (route(f"{{{TO_WEB}}}", labels={"team": team}) for team in ("a", "b"))
    assert changes(old, new) == [("metadata.labels.team", "a", "b")]


def test_values_of_secrets_are_not_shown() -> None:
    old, new = (
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}, "data": {"tls.key": key}}
        for key in ("c2VjcmV0", "aGlkZGVu")
    )
    ((path, *values),) = changes(old, new)
    assert (path, values) == ("spec.data.tls.key", ["", ""])


def test_texts_and_their_number_are_limited() -> None:
    old, new = (
        make("DestinationRule", "r", f"{{host: web, subsets: [{', '.join(subset(n, value) for n in range(50))}]}}")
        for value in ("a" * 63, "b" * 63)
    )
    fields = changes(old, new)
    assert len(fields) == MAX_FIELDS
    assert all(len(path) <= MAX_PATH + 30 and len(before) <= MAX_VALUE + 30 for path, before, _ in fields)


def subset(number: int, value: str) -> str:
    return f"{{name: v{number}, labels: {{{'l' * 63}: {value}}}}}"


def test_new_and_deleted_objects_have_no_changed_fields() -> None:
    ((_, row),) = rows_of([route(f"{{{TO_WEB}}}")]).items()
    assert field_changes(None, row) == field_changes(row, None) == ()
