"""A control plane's side of the API server of the tests: access to it, a clock that does not wait, and what follows it."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import yaml

from pilot.kube.api_access import Access
from pilot.kube.api_client import ApiClient, RequestTimeouts
from pilot.kube.informer import WatchOptions
from pilot.lib.backoff import Backoff
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.apiserver.tokens import ADMIN

QUICK = WatchOptions(Backoff(0.001, 0.02))
PATIENCE = RequestTimeouts(connect=1.0, response=1.0, watch=60.0)
"""A server that stops in the moment of accepting a connection never answers on it."""


@contextlib.asynccontextmanager
async def defined_server() -> AsyncIterator[ApiServer]:
    """Yield a running API server that knows all kinds."""
    made = ApiServer()
    for plain in definitions():
        made.put(plain)
    await made.start()
    yield made
    await made.stop()


class Known:
    """Access that a test gives; `token` may be changed."""

    ttl = 1e9

    def __init__(self, server: ApiServer, token: str = ADMIN) -> None:
        self._server, self.token, self.loads = server, token, 0

    async def load(self) -> Access:
        self.loads += 1
        return Access(self._server.url, f"Bearer {self.token}")


def client_of(server: ApiServer, patience: RequestTimeouts = PATIENCE) -> ApiClient:
    return ApiClient(Known(server), timeouts=patience)


def pace(streams: bool = False) -> WatchOptions:
    return QUICK._replace(streaming_lists=streams)


def chance(seed: int) -> random.Random:
    return random.Random(seed)


def kubeconfig(server: ApiServer, token: str = ADMIN, roots: str = "") -> dict[str, Any]:
    """A kubeconfig for the server; `roots` is the certificate that it shows, in base64."""
    trusted = {"certificate-authority-data": roots} if roots else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server.url, **trusted}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }


def write_kubeconfig(server: ApiServer, path: pathlib.Path, roots: str = "") -> pathlib.Path:
    path.write_text(yaml.safe_dump(kubeconfig(server, roots=roots)))
    return path


async def until(check: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until something is so; fails where it does not come to be."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.002)
