"""Access to the API server of the tests: credentials, clients with short timeouts, and kubeconfigs."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import yaml

from pilot.kube.access import Access
from pilot.kube.api_client import ApiClient, RequestTimeouts
from pilot.kube.informer import WatchOptions
from pilot.lib.backoff import Backoff
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.apiserver.tokens import ADMIN

QUICK_WATCH = WatchOptions(Backoff(0.001, 0.02))
TIMEOUTS = RequestTimeouts(connect=1.0, response=1.0, watch=60.0)
"""A server that stops while it accepts a connection never answers on it."""


@contextlib.asynccontextmanager
async def server_with_crds() -> AsyncIterator[ApiServer]:
    """Yield a running API server that serves all kinds."""
    server = ApiServer()
    for plain in definitions():
        server.put(plain)
    await server.start()
    yield server
    await server.stop()


class StaticAccess:
    """Access with a fixed token, which tests may change."""

    ttl = 1e9

    def __init__(self, server: ApiServer, token: str = ADMIN) -> None:
        self._server, self.token, self.loads = server, token, 0

    async def load(self) -> Access:
        self.loads += 1
        return Access(self._server.url, f"Bearer {self.token}")


def client_of(server: ApiServer, timeouts: RequestTimeouts = TIMEOUTS) -> ApiClient:
    """Return an administrator's client."""
    return ApiClient(StaticAccess(server), timeouts=timeouts)


def watch_options(streams: bool = False) -> WatchOptions:
    """Return watch options with short backoff."""
    return QUICK_WATCH._replace(streaming_lists=streams)


def make_rng(seed: int) -> random.Random:
    """Return a seeded random number generator."""
    return random.Random(seed)


def kubeconfig(server: ApiServer, token: str = ADMIN, roots: str = "", namespace: str = "") -> dict[str, Any]:
    """Return a kubeconfig for the server. `roots` is its certificate in base64, and `namespace` that of the context."""
    authority = {"certificate-authority-data": roots} if roots else {}
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server.url, **authority}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"} | place}],
    }


def write_kubeconfig(server: ApiServer, path: pathlib.Path, roots: str = "", namespace: str = "") -> pathlib.Path:
    """Write a kubeconfig for an administrator, and return its path."""
    path.write_text(yaml.safe_dump(kubeconfig(server, roots=roots, namespace=namespace)))
    return path


async def until(check: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until a check is true. Raise TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.002)
