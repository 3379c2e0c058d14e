"""Ownership of objects by labels, tags and the default revision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pilot.controllers.revision_tags import RevisionTags
from pilot.kube.list_watch import NamespacedName, ObjectChange
from testing.kube.kube_access import make_rng, watch_options

REV, TAG = "istio.io/rev", "istio.io/tag"


def make_tags(revision: str) -> RevisionTags:
    client: Any = object()
    return RevisionTags(client, revision, "istio-system", watch_options(), make_rng(1))


async def put(tags: RevisionTags, kind: str, name: str, labels: dict[str, str] | None) -> None:
    raw = msgspec.json.encode({"metadata": {"name": name, "labels": labels}}) if labels is not None else None
    await tags._receiver(kind)([ObjectChange(NamespacedName("", name), raw)])


def owned_cases(tags: RevisionTags) -> list[bool]:
    """Return whether each sample is owned: two unlabelled, four with a revision, one in a labelled namespace."""
    cases = [
        ({}, None),
        ({}, {}),
        *(({REV: name}, {REV: "other"}) for name in ("blue", "green", "prod", "default")),
        ({}, {REV: "prod"}),
    ]
    return [tags.is_ours(labels, namespace) for labels, namespace in cases]


@pytest.mark.parametrize(
    ("revision", "sources", "expected"),
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
async def test_ownership(revision: str, sources: list[tuple[str, dict[str, str]]], expected: list[bool]) -> None:
    tags = make_tags(revision)
    for number, (kind, labels) in enumerate(sources):
        await put(tags, kind, f"place-{number}", labels)
    assert owned_cases(tags) == expected


async def test_only_tag_changes_notify() -> None:
    tags, sizes = make_tags("blue"), list[int]()
    tags.on_change.append(lambda: sizes.append(len(tags._labels)))
    await put(tags, "tags", "a", {REV: "blue", TAG: "prod"})
    await put(tags, "tags", "a", {REV: "blue", TAG: "prod"})
    await put(tags, "services", "a", {REV: "blue", TAG: "prod"})
    await put(tags, "tags", "b", None)
    await put(tags, "tags", "a", None)
    assert sizes == [1, 2, 1]
    assert owned_cases(tags)[4] is True, "the Service with this name still has the tag"


def test_watched_collections() -> None:
    collections = [informer.collection for informer in make_tags("blue")._informers]
    admission = "/apis/admissionregistration.k8s.io/v1"
    assert [
        (collection.path, collection.labels, collection.fields, collection.metadata_only) for collection in collections
    ] == [
        (f"{admission}/mutatingwebhookconfigurations", TAG, "", True),
        ("/api/v1/namespaces/istio-system/services", TAG, "", True),
        (f"{admission}/validatingwebhookconfigurations", "", "metadata.name=istiod-default-validator", True),
    ]
