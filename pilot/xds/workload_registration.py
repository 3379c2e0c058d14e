"""Registers workloads that run outside Kubernetes, when their proxies connect."""

from __future__ import annotations

from typing import Protocol

from pilot.mesh.model.proxy import Proxy


class RegistrationError(Exception):
    """A workload cannot be registered. Its stream is rejected.

    `not_found` is true if the workload's WorkloadGroup or WorkloadEntry does not exist.
    """

    def __init__(self, message: str, not_found: bool = False) -> None:
        super().__init__(message)
        self.not_found = not_found


class WorkloadRegistration(Protocol):
    """Registers the workloads of proxies and tracks their health."""

    async def register(self, proxy: Proxy) -> None:
        """Register the workload of a proxy that opens a stream. Raise RegistrationError to reject the stream."""

    def unregister(self, proxy: Proxy) -> None:
        """Handle the end of a proxy's stream."""

    def report_health(self, proxy: Proxy, healthy: bool, message: str) -> None:
        """Handle the result of a proxy's health check."""


class NoRegistration:
    """Registers nothing."""

    async def register(self, proxy: Proxy) -> None:
        """Accept the stream."""

    def unregister(self, proxy: Proxy) -> None:
        """Do nothing."""

    def report_health(self, proxy: Proxy, healthy: bool, message: str) -> None:
        """Do nothing."""
