"""A connected proxy, as described by the node in its xDS requests."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.mesh.model.endpoint import Locality


class NodeType(enum.StrEnum):
    SIDECAR = "sidecar"
    ROUTER = "router"
    WAYPOINT = "waypoint"
    ZTUNNEL = "ztunnel"


class NodeError(ValueError):
    """Raised if the node in a proxy's first request is invalid. The message is sent to the peer."""


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """A connected proxy.

    `id` is the third part of the node id (`<pod>.<namespace>`). `ips` has at least one address, and all are valid.
    `metadata` is the metadata of the node as plain data (istio.io/latest/docs/reference/config). All booleans and lists
    in it are strings.

    `extensions` are the names and types of the extensions that are compiled into the proxy's Envoy. It is None if the
    node does not list them. Istio's proxy, started by pilot-agent, lists none and has every extension of Istio's build.
    `envoy` is the Envoy version, or None if the node does not report it. `node_cluster` is the cluster in the node,
    which tracers use as the name of the workload.

    `identity` is the verified SPIFFE identity of the stream, or "" if none was verified. All other fields are claims by
    the proxy.
    """

    type: NodeType
    id: str
    ips: tuple[str, ...]
    dns_domain: str
    namespace: str
    metadata: Mapping[str, Any] = {}
    locality: Locality = Locality()
    extensions: frozenset[str] | None = None
    envoy: tuple[int, int] | None = None
    node_cluster: str = ""
    version: str = ""  # ISTIO_VERSION
    identity: str = ""

    def text(self, key: str, default: str = "") -> str:
        """Return a metadata value as a string, or `default` if it is absent."""
        value = self.metadata.get(key)
        return default if value is None else str(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Return whether a metadata value (Istio's StringBool) is "true", in upper or lower case, or "1". Return
        `default` if it is absent."""
        value = self.metadata.get(key)
        return default if value is None else str(value).lower() in ("true", "1")

    def items(self, key: str) -> tuple[str, ...]:
        """Return the items of a comma-separated metadata value (Istio's StringList)."""
        return tuple(p.strip() for p in self.text(key).split(",") if p.strip())

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels in the node's metadata. LABELS override STATIC_LABELS."""
        return {**(self.metadata.get("STATIC_LABELS") or {}), **(self.metadata.get("LABELS") or {})}

    @property
    def cluster_id(self) -> str:
        return self.text("CLUSTER_ID", "Kubernetes")
