"""Whose an object is, by labels, tags and the default revision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pilot.controllers.revision_tags import RevisionTags
from pilot.kube.list_watch import NamespacedName, ObjectChange
from testing.kube.kube_access import make_rng, watch_options

REV, TAG = "istio.io/rev", "istio.io/tag"


def made(revision: str) -> RevisionTags:
    client: Any = object()
    return RevisionTags(client, revision, "istio-system", watch_options(), make_rng(1))


async def put(tags: RevisionTags, what: str, name: str, labels: dict[str, str] | None) -> None:
    raw = msgspec.json.encode({"metadata": {"name": name, "labels": labels}}) if labels is not None else None
    await tags._receiver(what)([ObjectChange(NamespacedName("", name), raw)])


def whose(tags: RevisionTags) -> list[bool]:
    """Returns whether objects are ours: one without a label and an unknown namespace, one in a namespace without a label, ones that name blue,
    green, prod and default, and one in a namespace that names prod."""
    asked = [
        ({}, None),
        ({}, {}),
        *(({REV: name}, {REV: "other"}) for name in ("blue", "green", "prod", "default")),
        ({}, {REV: "prod"}),
    ]
    return [tags.is_ours(labels, namespace) for labels, namespace in asked]


@pytest.mark.parametrize(
    ("revision", "places", "ours"),
    [
        ("", [], [True, True, False, False, False, True, False]),
        ("blue", [], [True, False, True, False, False, False, False]),
        ("blue", [("tags", {REV: "blue", TAG: "prod"})], [True, False, True, False, True, False, True]),
        ("blue", [("services", {REV: "blue", TAG: "prod"})], [True, False, True, False, True, False, True]),
        ("blue", [("tags", {REV: "green", TAG: "prod"})], [True, False, True, False, False, False, False]),
        ("blue", [("tags", {REV: "blue", TAG: "default"})], [True, True, True, False, False, True, False]),
        ("blue", [("default", {REV: "blue"})], [True, True, True, False, False, False, False]),
        ("blue", [("default", {REV: "blue", TAG: "prod"})], [True, True, True, False, False, False, False]),
        ("blue", [("default", {REV: "green"})], [True, False, True, False, False, False, False]),
        (
            "blue",
            [("default", {REV: "blue"}), ("tags", {REV: "green", TAG: "default"})],
            [True, False, True, False, False, False, False],
        ),
        (
            "blue",
            [("default", {REV: "blue"}), ("services", {REV: "green", TAG: "default"})],
            [True, True, True, False, False, False, False],
        ),
        ("blue", [("tags", {REV: "blue"})], [True, False, True, False, False, False, False]),
    ],
)
async def test_whose_an_object_is(revision: str, places: list[tuple[str, dict[str, str]]], ours: list[bool]) -> None:
    tags = made(revision)
    for number, (what, labels) in enumerate(places):
        await put(tags, what, f"place-{number}", labels)
    assert whose(tags) == ours


async def test_what_changes_a_tag_is_told_and_what_does_not_is_not() -> None:
    tags, told = made("blue"), list[int]()
    tags.on_change.append(lambda: told.append(len(tags._labels)))
    await put(tags, "tags", "a", {REV: "blue", TAG: "prod"})
    await put(tags, "tags", "a", {REV: "blue", TAG: "prod"})
    await put(tags, "services", "a", {REV: "blue", TAG: "prod"})
    await put(tags, "tags", "b", None)
    await put(tags, "tags", "a", None)
    assert told == [1, 2, 1]
    assert whose(tags)[4] is True, "the Service of that name has the tag still"


def test_tags_are_followed_by_their_labels_in_three_places() -> None:
    followed = [each.collection for each in made("blue")._informers]
    admission = "/apis/admissionregistration.k8s.io/v1"
    assert [(where.path, where.labels, where.fields, where.metadata_only) for where in followed] == [
        (f"{admission}/mutatingwebhookconfigurations", TAG, "", True),
        ("/api/v1/namespaces/istio-system/services", TAG, "", True),
        (f"{admission}/validatingwebhookconfigurations", "", "metadata.name=istiod-default-validator", True),
    ]
