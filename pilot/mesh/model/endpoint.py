"""Endpoints of services."""

from __future__ import annotations

import enum

import msgspec


class EndpointHealth(enum.StrEnum):
    """Health of an endpoint. UNKNOWN, which most endpoints of ServiceEntries have, is treated as healthy."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "UnHealthy"
    DRAINING = "Draining"
    TERMINATING = "Terminating"


class Locality(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A locality with Envoy's three levels. Unknown levels are ""."""

    region: str = ""
    zone: str = ""
    subzone: str = ""

    @classmethod
    def parse(cls, text: str) -> Locality:
        """Return the locality of a "region/zone/subzone". Trailing levels may be missing."""
        return cls(*text.split("/")[:3])

    def __str__(self) -> str:
        return "/".join((self.region, self.zone, self.subzone)).rstrip("/")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint of a service port.

    Envoy uses the first of `addresses`. The others are additional addresses in other IP families. An address is "" if
    only the gateway of its network is known. A Unix socket is a path, and its `port` is 0.

    `labels` are those of the workload and its topology (`pilot.lib.labels.with_topology`). `locality_text` is the
    locality as written. Endpoints are grouped by it, so "r/z" and "r/z/" are separate groups.
    """

    addresses: tuple[str, ...]
    port: int
    port_name: str
    namespace: str = ""
    labels: frozenset[tuple[str, str]] = frozenset()
    service_account: str = ""  # SPIFFE identity, or "" if unknown
    workload: str = ""
    hostname: str = ""  # the hostname of a Pod in a headless service
    subdomain: str = ""  # the DNS label after the hostname of such a Pod
    network: str = ""
    cluster_id: str = ""
    locality: Locality = Locality()
    locality_text: str = ""
    node: str = ""
    weight: int = 0  # 0 if it is not set, which is treated as 1
    health: EndpointHealth = EndpointHealth.HEALTHY
    tls_mode: str = "disabled"  # "istio" if the workload accepts mesh mTLS
    hbone: bool = False  # the workload, or the ztunnel on its node, accepts HBONE
