"""Kubernetes' ServiceExport and ServiceImport. https://multicluster.sigs.k8s.io/concepts/multicluster-services-api/"""

from __future__ import annotations

from pilot.config.base import Lenient


class ServiceExport(Lenient, frozen=True):
    """Has the Service of its name, in its cluster, be there for other clusters."""


class ServiceImport(Lenient, frozen=True):
    """A service that clusters export, as one of them sees it. `ips` are its addresses there."""

    ips: tuple[str, ...] = ()
