"""Kubernetes' cluster-scoped kinds: Node and Namespace.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/
"""

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
    """A Node. The object's labels contain the locality."""

    status: NodeStatus = NodeStatus()


class Namespace(Lenient, frozen=True):
    """A Namespace. A namespace that has no row may still exist. It then has no labels."""
