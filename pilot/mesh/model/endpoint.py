"""An address that serves a port of a service."""

from __future__ import annotations

import enum

import msgspec


class EndpointHealth(enum.StrEnum):
    """UNKNOWN is what nobody says anything of, such as a ServiceEntry's endpoint; it counts as healthy."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "UnHealthy"
    DRAINING = "Draining"
    TERMINATING = "Terminating"


class Locality(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A locality has Envoy's three levels, "" where unknown."""

    region: str = ""
    zone: str = ""
    subzone: str = ""

    @classmethod
    def parse(cls, text: str) -> Locality:
        """Returns the locality of "region/zone/subzone"; levels at the end may be missing."""
        return cls(*text.split("/")[:3])

    def __str__(self) -> str:
        return "/".join((self.region, self.zone, self.subzone)).rstrip("/")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint of one service port. `addresses`: the first is the one to use, the others are its other IP families; "" where
    only the gateway of its network is known; a Unix socket is its path, with `port` 0.

    `labels` are those of the workload and where it runs (`pilot.lib.labels.with_topology`). `locality_text` is the locality as it
    was written: endpoints are grouped by it, so "r/z" and "r/z/" make two groups.
    """

    addresses: tuple[str, ...]
    port: int
    port_name: str
    namespace: str = ""
    labels: frozenset[tuple[str, str]] = frozenset()
    service_account: str = ""  # SPIFFE identity, "" where unknown
    workload: str = ""
    hostname: str = ""  # of a pod in a headless service
    subdomain: str = ""  # of such a pod: its part of its DNS name after the hostname
    network: str = ""
    cluster_id: str = ""
    locality: Locality = Locality()
    locality_text: str = ""
    node: str = ""
    weight: int = 0  # 0: not said, counts as 1
    health: EndpointHealth = EndpointHealth.HEALTHY
    tls_mode: str = "disabled"  # "istio" where the workload takes mesh mTLS
    hbone: bool = False  # the workload, or the ztunnel of its node for it, takes HBONE
