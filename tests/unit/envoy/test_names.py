"""xDS names: built and parsed alike."""

from __future__ import annotations

import pytest

from pilot.envoy import names
from pilot.envoy.names import ClusterName


@pytest.mark.parametrize(
    ("built", "text", "parsed"),
    [
        (names.outbound_cluster(80, "v1", "a.b"), "outbound|80|v1|a.b", ClusterName("outbound", 80, "v1", "a.b")),
        (names.outbound_cluster(80, "", "*.b"), "outbound|80||*.b", ClusterName("outbound", 80, "", "*.b")),
        (names.inbound_cluster(8080), "inbound|8080||", ClusterName("inbound", 8080, "", "")),
        (names.dns_srv(80, "v1", "a.b"), "outbound_.80_.v1_.a.b", ClusterName("outbound", 80, "v1", "a.b")),
        (names.dns_srv(80, "", "a-b_c.d"), "outbound_.80_._.a-b_c.d", ClusterName("outbound", 80, "", "a-b_c.d")),
    ],
)
def test_cluster_names(built: str, text: str, parsed: ClusterName) -> None:
    assert built == text
    assert names.parse_cluster(built) == parsed


NO_CLUSTERS = [
    "",
    "BlackHoleCluster",
    "outbound|80|v1",
    "outbound|http||a",
    "sideways|80||a",
    "outbound|80||a|b",
    "outbound_.80_.v1",
]


@pytest.mark.parametrize("text", NO_CLUSTERS)
def test_other_names_are_no_clusters(text: str) -> None:
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
def test_credentials(credential: str, sds: str) -> None:
    assert names.credential(credential) == sds


def test_files() -> None:
    assert names.file_certificate("/c.pem", "/k.pem") == "file-cert:/c.pem~/k.pem"
    assert names.file_certificate("/c.pem", "") == ""
    assert names.file_root("/ca.pem") == "file-root:/ca.pem"
    assert names.file_root("") == ""


def test_routes_of_gateways() -> None:
    assert names.gateway_routes(80) == "http.80"
    assert names.gateway_routes(80, "1.2.3.4") == "http.80.1.2.3.4"
    assert names.gateway_tls_routes(443, "https", "gw", "prod") == "https.443.https.gw.prod"
    assert names.gateway_tls_routes(443, "https", "gw", "prod", "1.2.3.4") == "https.443.https.gw.prod.1.2.3.4"
