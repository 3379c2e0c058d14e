"""A connected proxy is what its xDS node describes."""

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
    """The node of a first request cannot be understood; the text is for the peer."""


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """One proxy. `id` is the third part of the node id (`<pod>.<namespace>`), `ips` are valid addresses, at least one.

    `metadata` is the node's metadata as plain data (istio.io/latest/docs/reference/config: all booleans and lists are strings).
    `extensions` are names and types of the extensions that its Envoy was built with, None where the node does not list them (Istio's proxy
    through pilot-agent): then it has everything that Istio's build has. `envoy` is the version of its Envoy, None where the node does not say it;
    `node_cluster` is the cluster of its node, by which tracers know its workload. `identity` is the SPIFFE identity that its stream has proved
    and that may be this proxy, "" where none was verified; everything else is what the proxy says of itself.
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
        """Returns a metadata value as text, `default` where it is absent."""
        value = self.metadata.get(key)
        return default if value is None else str(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Returns whether a metadata value, Istio's StringBool, is "true" or "1" in any case; `default` where it is absent."""
        value = self.metadata.get(key)
        return default if value is None else str(value).lower() in ("true", "1")

    def items(self, key: str) -> tuple[str, ...]:
        """Returns a metadata value that is Istio's StringList: the parts between commas."""
        return tuple(p.strip() for p in self.text(key).split(",") if p.strip())

    @property
    def labels(self) -> Mapping[str, str]:
        """Returns the labels that the node announces: LABELS laid over STATIC_LABELS."""
        return {**(self.metadata.get("STATIC_LABELS") or {}), **(self.metadata.get("LABELS") or {})}

    @property
    def cluster_id(self) -> str:
        return self.text("CLUSTER_ID", "Kubernetes")
