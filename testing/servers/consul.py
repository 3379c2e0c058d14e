"""A stand-in of a Consul agent: the part of its HTTP API that lists services and their instances, with blocking queries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiohttp import web


class Consul:
    """Services by name. A query with the index that a list has now waits until it changes; `stop` and `start` keep services and port."""

    def __init__(self) -> None:
        self._services: dict[str, list[Mapping[str, Any]]] = {}
        self._index, self._indexes = 10, dict[str, int]()
        self._changed = asyncio.Condition()
        self.asked: list[str] = []
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/catalog/services", self._list)
        app.router.add_get("/v1/health/service/{name}", self._health)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def set(self, name: str, *instances: Mapping[str, Any]) -> None:
        """Registers the instances of a service; without any it goes."""
        async with self._changed:
            self._index += 1
            if (name in self._services) is not bool(instances):
                self._indexes[""] = self._index
            if instances:
                self._services[name] = list(instances)
            else:
                self._services.pop(name, None)
            self._indexes[name] = self._index
            self._changed.notify_all()

    def restart(self) -> None:
        """Begins to count anew, as a server does that has lost its state."""
        self._index, self._indexes = 1, {}

    async def _list(self, request: web.Request) -> web.Response:
        return await self._answer(request, "", lambda: {name: [] for name in self._services})

    async def _health(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return await self._answer(request, name, lambda: self._services.get(name, []))

    async def _answer(self, request: web.Request, key: str, found: Any) -> web.Response:
        self.asked.append(request.path_qs)
        index = int(request.query.get("index", 0))
        async with self._changed:
            await self._changed.wait_for(lambda: self._indexes.get(key, 1) != index)
            return web.json_response(found(), headers={"X-Consul-Index": str(self._indexes.get(key, 1))})


def instance(
    address: str = "10.0.0.1", port: int = 8080, status: str = "passing", node: str = "10.9.0.1", **service: Any
) -> dict[str, Any]:
    """One instance; `service` are more fields of it."""
    found = {"Address": address, "Port": port, **service}
    return {"Node": {"Address": node, "Datacenter": "dc1"}, "Service": found, "Checks": [{"Status": status}]}
