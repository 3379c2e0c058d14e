"""Locality, topology and canonical names from labels."""

from __future__ import annotations

import pytest

from pilot.lib.labels import (
    accepts_hbone,
    canonical_service,
    cut,
    locality_label,
    node_locality,
    split_locality,
    with_topology,
)

REGION, ZONE, SUBZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"
OLD_REGION, OLD_ZONE = "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("labels", "locality"),
    [
        ({}, ""),
        ({"other": "x"}, ""),
        ({REGION: "r"}, "r//"),
        ({ZONE: "z"}, "/z/"),
        ({SUBZONE: "s"}, "//s"),
        ({REGION: "r", ZONE: "z", SUBZONE: "s"}, "r/z/s"),
        ({OLD_REGION: "r", OLD_ZONE: "z"}, "r/z/"),
        ({REGION: "r", OLD_REGION: "o", ZONE: "z", OLD_ZONE: "o"}, "r/z/"),
        ({REGION: "", OLD_REGION: "o", ZONE: "", OLD_ZONE: "p"}, "o/p/"),
    ],
)
def test_node_locality(labels: dict[str, str], locality: str) -> None:
    assert node_locality(labels) == locality


@pytest.mark.parametrize(
    ("labels", "locality"),
    [
        ({}, ""),
        ({"topology.istio.io/locality": "r.z.s"}, "r/z/s"),
        ({"topology.istio.io/locality": "r/z.1/s"}, "r/z.1/s"),
        ({"istio-locality": "r.z"}, "r/z"),
        ({"topology.istio.io/locality": "r", "istio-locality": "o"}, "r"),
    ],
)
def test_locality_label(labels: dict[str, str], locality: str) -> None:
    assert locality_label(labels) == locality


def test_split_locality() -> None:
    assert [split_locality(text) for text in ("", "r", "r/z", "r/z/s", "r//s", "r/z/s/t")] == [
        ("", "", ""),
        ("r", "", ""),
        ("r", "z", ""),
        ("r", "z", "s"),
        ("r", "", "s"),
        ("r", "z", "s"),
    ]


def test_topology_labels() -> None:
    topology = {
        REGION: "r",
        ZONE: "z",
        "topology.istio.io/cluster": "c",
        "kubernetes.io/hostname": "node",
        "topology.istio.io/network": "net",
    }
    assert with_topology({"app": "a"}, "c", "r/z", "node", "net") == {"app": "a", **topology}
    labels = {"topology.istio.io/network": "mine", REGION: "theirs"}
    assert with_topology(labels, "c", "r/z", "node", "net") == {**topology, "topology.istio.io/network": "mine"}
    assert with_topology(labels, "", "", "", "") == labels
    assert labels == {"topology.istio.io/network": "mine", REGION: "theirs"}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ("web", "latest")),
        ({"app": "a", "version": "v1"}, ("a", "v1")),
        ({"app": "a", "app.kubernetes.io/name": "b", "version": "v1", "app.kubernetes.io/version": "v2"}, ("b", "v2")),
        ({"app.kubernetes.io/name": "b", "service.istio.io/canonical-name": "c"}, ("c", "latest")),
        ({"app.kubernetes.io/version": "v2", "service.istio.io/canonical-revision": "v3"}, ("web", "v3")),
        ({"app": ""}, ("", "latest")),
    ],
)
def test_canonical_service(labels: dict[str, str], expected: tuple[str, str]) -> None:
    assert canonical_service(labels, "web") == expected


def test_accepts_hbone() -> None:
    tunnel, captured = {"networking.istio.io/tunnel": "none,http"}, {"ambient.istio.io/redirection": "enabled"}
    assert [
        accepts_hbone(tunnel, {}),
        accepts_hbone({}, captured),
        accepts_hbone({}, {}),
        accepts_hbone({"networking.istio.io/tunnel": "https"}, {}),
    ] == [
        True,
        True,
        False,
        False,
    ]
    assert accepts_hbone({}, {"ambient.istio.io/redirection": "disabled"}) is False


def test_cut_selects_labels_by_key() -> None:
    assert cut({"a": "1", "b": "", "c": "3"}, ("a", "b", "d")) == {("a", "1"), ("b", "")}
    assert cut({"a": "1"}, ()) == frozenset()
