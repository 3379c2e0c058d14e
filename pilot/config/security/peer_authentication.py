"""security.istio.io PeerAuthentication. https://istio.io/latest/docs/reference/config/security/peer_authentication/"""

from __future__ import annotations

from typing import Literal

from pilot.config.base import Strict, UInt32
from pilot.config.selector import WorkloadSelector

MutualTLSMode = Literal["UNSET", "DISABLE", "PERMISSIVE", "STRICT"]


class MutualTLS(Strict, frozen=True):
    mode: MutualTLSMode = "UNSET"


class PeerAuthentication(Strict, frozen=True):
    """Specifies whether workloads accept mutual TLS, plaintext or both."""

    selector: WorkloadSelector | None = None
    mtls: MutualTLS | None = None
    port_level_mtls: dict[UInt32, MutualTLS] = {}
