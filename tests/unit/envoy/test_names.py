"""Formatting and parsing of xDS names."""

from __future__ import annotations

import pytest

from pilot.envoy import names
from pilot.envoy.names import ClusterName


@pytest.mark.parametrize(
    ("name", "text", "parsed"),
    [
        (names.outbound_cluster(80, "v1", "a.b"), "outbound|80|v1|a.b", ClusterName("outbound", 80, "v1", "a.b")),
        (names.outbound_cluster(80, "", "*.b"), "outbound|80||*.b", ClusterName("outbound", 80, "", "*.b")),
        (names.inbound_cluster(8080), "inbound|8080||", ClusterName("inbound", 8080, "", "")),
        (names.dns_srv(80, "v1", "a.b"), "outbound_.80_.v1_.a.b", ClusterName("outbound", 80, "v1", "a.b")),
        (names.dns_srv(80, "", "a-b_c.d"), "outbound_.80_._.a-b_c.d", ClusterName("outbound", 80, "", "a-b_c.d")),
    ],
)
def test_cluster_names(name: str, text: str, parsed: ClusterName) -> None:
    assert name == text
    assert names.parse_cluster(name) == parsed


INVALID_CLUSTER_NAMES = [
    "",
    "BlackHoleCluster",
    "outbound|80|v1",
    "outbound|http||a",
    "sideways|80||a",
    "outbound|80||a|b",
    "outbound_.80_.v1",
]


@pytest.mark.parametrize("text", INVALID_CLUSTER_NAMES)
def test_invalid_cluster_names(text: str) -> None:
    assert names.parse_cluster(text) is None


@pytest.mark.parametrize(
    ("credential", "sds"),
    [
        ("web", "kubernetes://web"),
        ("prod/web", "kubernetes://prod/web"),
        ("kubernetes://web", "kubernetes://web"),
        ("kubernetes-gateway://prod/web", "kubernetes-gateway://prod/web"),
        ("configmap://prod/web", "configmap://prod/web"),
        ("builtin://", "default"),
        ("invalid://whatever", "invalid://"),
    ],
)
def test_credential_names(credential: str, sds: str) -> None:
    assert names.credential(credential) == sds


def test_file_secret_names() -> None:
    assert names.file_certificate("/c.pem", "/k.pem") == "file-cert:/c.pem~/k.pem"
    assert names.file_certificate("/c.pem", "") == ""
    assert names.file_root("/ca.pem") == "file-root:/ca.pem"
    assert names.file_root("") == ""


def test_gateway_route_names() -> None:
    assert names.gateway_routes(80) == "http.80"
    assert names.gateway_routes(80, "1.2.3.4") == "http.80.1.2.3.4"
    assert names.gateway_tls_routes(443, "https", "gw", "prod") == "https.443.https.gw.prod"
    assert names.gateway_tls_routes(443, "https", "gw", "prod", "1.2.3.4") == "https.443.https.gw.prod.1.2.3.4"
