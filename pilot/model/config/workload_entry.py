"""networking.istio.io WorkloadEntry. https://istio.io/latest/docs/reference/config/networking/workload-entry/"""
from __future__ import annotations

from pilot.model.config.base import Strict, UInt32


class WorkloadEntry(Strict, frozen=True):
    """A workload outside of Kubernetes. `address`: an IP, a name, or "unix://" and a path."""

    address: str = ""
    ports: dict[str, UInt32] = {}
    labels: dict[str, str] = {}
    network: str = ""
    locality: str = ""
    weight: UInt32 = 0
    service_account: str = ""
