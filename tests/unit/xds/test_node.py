"""The node that a proxy announces."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2

from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import NodeError, NodeType
from pilot.xds.node import parse_node

ID = "sidecar~10.0.0.1~pod.ns~ns.svc.cluster.local"


def node(node_id: str = ID, **metadata: Any) -> base_pb2.Node:
    made = base_pb2.Node(id=node_id)
    made.metadata.update(metadata)
    return made


def test_a_whole_node() -> None:
    asked = node(
        NAMESPACE="own",
        ISTIO_VERSION="1.30.1",
        INSTANCE_IPS="10.0.0.2, fd00::1",
        LABELS={"app": "a"},
        PROXY_CONFIG={"concurrency": 2},
    )
    asked.locality.region, asked.locality.zone, asked.locality.sub_zone = "r", "z", "s"
    proxy = parse_node(asked)
    assert (proxy.type, proxy.id, proxy.dns_domain, proxy.namespace) == (
        NodeType.SIDECAR,
        "pod.ns",
        "ns.svc.cluster.local",
        "own",
    )
    assert proxy.ips == ("10.0.0.2", "fd00::1")
    assert proxy.metadata["PROXY_CONFIG"] == {"concurrency": 2}
    assert isinstance(proxy.metadata["PROXY_CONFIG"]["concurrency"], int)
    assert (proxy.labels, proxy.version, proxy.locality) == ({"app": "a"}, "1.30.1", Locality("r", "z", "s"))
    assert proxy.extensions is None


def test_the_namespace_of_one_that_does_not_say() -> None:
    assert parse_node(node()).namespace == "ns"
    assert parse_node(node("sidecar~10.0.0.1~pod.ns~local")).namespace == ""


@pytest.mark.parametrize(
    ("listed", "own", "ips"),
    [
        ("", "10.0.0.1", ("10.0.0.1",)),
        ("10.0.0.2", "10.0.0.1", ("10.0.0.2",)),
        ("10.0.0.2,nonsense", "10.0.0.1", ("10.0.0.1",)),
        ("10.0.0.2", "", ("10.0.0.2",)),
    ],
)
def test_addresses(listed: str, own: str, ips: tuple[str, ...]) -> None:
    assert parse_node(node(f"router~{own}~pod.ns~ns.svc", INSTANCE_IPS=listed)).ips == ips


def test_extensions_of_a_stock_envoy() -> None:
    asked = node()
    asked.extensions.add(name="envoy.filters.http.router", category="envoy.filters.http", type_urls=["some.v3.Router"])
    extensions = parse_node(asked).extensions
    assert extensions == {"envoy.filters.http.router", "some.v3.Router"}
    assert parse_node(asked).extensions is extensions, "thousands of names are held once"


def test_another_name_of_a_cluster() -> None:
    assert parse_node(node(CLUSTER_ID="east-1"), {"east-1": "east"}).cluster_id == "east"


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (node("sidecar~10.0.0.1~pod.ns"), "missing parts"),
        (node("a~b~c~d~e"), "missing parts"),
        (node("Sidecar~10.0.0.1~pod.ns~ns.svc"), "invalid node type"),
        (node("sidecar~~pod.ns~ns.svc"), "no valid IP address"),
        (node(LABELS="a=b"), "LABELS: expected a map"),
        (node(LABELS={"a": 1}), "LABELS: expected a map"),
        (node(ISTIO_VERSION=1.3), "ISTIO_VERSION: expected a string"),
        (node(INSTANCE_IPS=["10.0.0.1"]), "INSTANCE_IPS: expected a string"),
    ],
)
def test_what_cannot_be_understood(asked: base_pb2.Node, text: str) -> None:
    with pytest.raises(NodeError, match=text):
        parse_node(asked)
