"""ServiceExport and ServiceImport of the Multi-Cluster Services API.

https://multicluster.sigs.k8s.io/concepts/multicluster-services-api/
"""

from __future__ import annotations

from pilot.config.base import Lenient


class ServiceExport(Lenient, frozen=True):
    """Exports the Service with the same name in its cluster to other clusters."""


class ServiceImport(Lenient, frozen=True):
    """An exported service from the view of one cluster. `ips` are its addresses there."""

    ips: tuple[str, ...] = ()
