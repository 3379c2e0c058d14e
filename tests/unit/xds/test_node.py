"""Parsing of a proxy's node."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2

from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import NodeError, NodeType
from pilot.xds.node import parse_node

ID = "sidecar~10.0.0.1~pod.ns~ns.svc.cluster.local"


def node(node_id: str = ID, **metadata: Any) -> base_pb2.Node:
    message = base_pb2.Node(id=node_id)
    message.metadata.update(metadata)
    return message


def test_parse_node() -> None:
    message = node(
        NAMESPACE="own",
        ISTIO_VERSION="1.30.1",
        INSTANCE_IPS="10.0.0.2, fd00::1",
        LABELS={"app": "a"},
        PROXY_CONFIG={"concurrency": 2},
    )
    message.locality.region, message.locality.zone, message.locality.sub_zone = "r", "z", "s"
    proxy = parse_node(message)
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


def test_namespace_defaults_to_the_dns_domain() -> None:
    assert parse_node(node()).namespace == "ns"
    assert parse_node(node("sidecar~10.0.0.1~pod.ns~local")).namespace == ""


@pytest.mark.parametrize(
    ("instance_ips", "id_address", "ips"),
    [
        ("", "10.0.0.1", ("10.0.0.1",)),
        ("10.0.0.2", "10.0.0.1", ("10.0.0.2",)),
        ("10.0.0.2,nonsense", "10.0.0.1", ("10.0.0.1",)),
        ("10.0.0.2", "", ("10.0.0.2",)),
    ],
)
def test_ip_addresses(instance_ips: str, id_address: str, ips: tuple[str, ...]) -> None:
    assert parse_node(node(f"router~{id_address}~pod.ns~ns.svc", INSTANCE_IPS=instance_ips)).ips == ips


def test_extensions() -> None:
    message = node()
    message.extensions.add(
        name="envoy.filters.http.router", category="envoy.filters.http", type_urls=["some.v3.Router"]
    )
    extensions = parse_node(message).extensions
    assert extensions == {"envoy.filters.http.router", "some.v3.Router"}
    assert parse_node(message).extensions is extensions, "equal sets of extension names share memory"


def test_cluster_alias() -> None:
    assert parse_node(node(CLUSTER_ID="east-1"), {"east-1": "east"}).cluster_id == "east"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (node("sidecar~10.0.0.1~pod.ns"), "missing parts"),
        (node("a~b~c~d~e"), "missing parts"),
        (node("Sidecar~10.0.0.1~pod.ns~ns.svc"), "invalid node type"),
        (node("sidecar~~pod.ns~ns.svc"), "no valid IP address"),
        (node(LABELS="a=b"), "LABELS must be a map"),
        (node(LABELS={"a": 1}), "LABELS must be a map"),
        (node(ISTIO_VERSION=1.3), "ISTIO_VERSION must be a string"),
        (node(INSTANCE_IPS=["10.0.0.1"]), "INSTANCE_IPS must be a string"),
    ],
)
def test_invalid_node_is_rejected(message: base_pb2.Node, text: str) -> None:
    with pytest.raises(NodeError, match=text):
        parse_node(message)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"INSTANCE_IPS": ",".join(["10.0.0.1"] * 257)}, "more than 256 IP addresses"),
        ({"LABELS": {f"label{i}": "a" for i in range(4097)}}, "more than 4096 values"),
        ({"PROXY_CONFIG": {"list": [0.0] * 4097}}, "more than 4096 values"),
    ],
    ids=["addresses", "labels", "list"],
)
def test_oversized_metadata_is_rejected(metadata: dict[str, Any], reason: str) -> None:
    with pytest.raises(NodeError, match=reason):
        parse_node(node(**metadata))


def test_excessive_extensions_are_rejected() -> None:
    message = node()
    for number in range(4097):
        message.extensions.add(name=f"extension{number}")
    with pytest.raises(NodeError, match="4097 extensions; at most 4096 are allowed"):
        parse_node(message)
