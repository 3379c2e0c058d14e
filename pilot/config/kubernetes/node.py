"""Kubernetes Node. https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/"""

from __future__ import annotations

from pilot.config.base import Lenient


class NodeAddress(Lenient, frozen=True):
    type: str = ""
    address: str = ""


class NodeSystemInfo(Lenient, frozen=True):
    kubelet_version: str = ""


class NodeStatus(Lenient, frozen=True):
    addresses: tuple[NodeAddress, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Lenient, frozen=True):
    """A Node. Its locality is in the labels of the object."""

    status: NodeStatus = NodeStatus()
