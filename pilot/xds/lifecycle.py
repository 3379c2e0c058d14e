"""What follows from the streams of proxies outside of the mesh's tables: somebody may register the workload of each, and keep its health."""

from __future__ import annotations

from typing import Protocol

from pilot.mesh.model.proxy import Proxy


class RegistrationError(Exception):
    """A workload cannot be registered, and so its stream is refused. `misplaced`: what it is to be registered for does not exist."""

    def __init__(self, message: str, misplaced: bool = False) -> None:
        super().__init__(message)
        self.misplaced = misplaced


class Lifecycle(Protocol):
    """Is told of each stream when it begins and ends, and of the health that a proxy reports."""

    async def connected(self, proxy: Proxy) -> None:
        """Returns when the stream may be served. RegistrationError where it may not."""

    def closed(self, proxy: Proxy) -> None: ...
    def reported(self, proxy: Proxy, healthy: bool, message: str) -> None: ...


class NoLifecycle:
    """Nothing follows."""

    async def connected(self, proxy: Proxy) -> None:
        """Returns at once."""

    def closed(self, proxy: Proxy) -> None:
        """Does nothing."""

    def reported(self, proxy: Proxy, healthy: bool, message: str) -> None:
        """Does nothing."""
