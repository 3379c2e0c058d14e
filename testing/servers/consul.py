"""A stub of a Consul agent: the HTTP API for services and their instances, with blocking queries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiohttp import web


class Consul:
    """Services by name.

    A query with the current index blocks until there is a change. `stop` and `start` keep the services and the port.
    """

    def __init__(self) -> None:
        self._services: dict[str, list[Mapping[str, Any]]] = {}
        self._index, self._indexes = 10, dict[str, int]()
        self._changed = asyncio.Condition()
        self.queries: list[str] = []
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
        """Register the instances of a service. Without instances, the service is removed."""
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
        """Reset the index, as a server that lost its state does."""
        self._index, self._indexes = 1, {}

    async def _list(self, request: web.Request) -> web.Response:
        return await self._answer(request, "", lambda: {name: [] for name in self._services})

    async def _health(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return await self._answer(request, name, lambda: self._services.get(name, []))

    async def _answer(self, request: web.Request, key: str, content: Any) -> web.Response:
        self.queries.append(request.path_qs)
        index = int(request.query.get("index", 0))
        async with self._changed:
            await self._changed.wait_for(lambda: self._indexes.get(key, 1) != index)
            return web.json_response(content(), headers={"X-Consul-Index": str(self._indexes.get(key, 1))})


def instance(
    address: str = "10.0.0.1", port: int = 8080, status: str = "passing", node: str = "10.9.0.1", **service: Any
) -> dict[str, Any]:
    """Return an instance. `service` are additional fields."""
    fields = {"Address": address, "Port": port, **service}
    return {"Node": {"Address": node, "Datacenter": "dc1"}, "Service": fields, "Checks": [{"Status": status}]}
