"""Serves the catalogue of a Consul agent as ServiceEntries over xDS.

python -m samples.consul.adapter --consul http://127.0.0.1:8500 --listen 127.0.0.1:15090 --namespace consul
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping

from grpc import aio

from samples.consul.catalogue import Catalogue, Instances
from samples.consul.entries import build_entry
from samples.consul.server import Objects


class Adapter:
    """Follows Consul, and serves from when all services that there were are known; `port` is the one that it listens on then."""

    def __init__(self, consul: str, listen: str, namespace: str = "consul", headers: Mapping[str, str] = {}) -> None:
        self._listen, self._namespace, self.port = listen, namespace, 0
        self._objects = Objects()
        self._catalogue = Catalogue(consul, self._changed, headers)
        self._following: asyncio.Task[None] | None = None
        self._server = aio.server()

    async def start(self) -> None:
        """Returns when it serves. Before that nobody is told that there is nothing."""
        self._following = asyncio.create_task(self._catalogue.run())
        await self._catalogue.synced.wait()
        self._server.add_generic_rpc_handlers((self._objects.handlers(),))
        self.port = self._server.add_insecure_port(self._listen)
        await self._server.start()

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
        await self._server.stop(None)

    def _changed(self, name: str, instances: Instances) -> None:
        self._objects.put(name, build_entry(name, instances, self._namespace))


async def _run(arguments: argparse.Namespace) -> None:
    adapter = Adapter(
        arguments.consul,
        arguments.listen,
        arguments.namespace,
        {"X-Consul-Token": arguments.token} if arguments.token else {},
    )
    await adapter.start()
    print(f"serving on {arguments.listen}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the catalogue of a Consul agent as ServiceEntries over xDS.")
    parser.add_argument("--consul", default="http://127.0.0.1:8500", help="URL of the agent's HTTP API")
    parser.add_argument("--listen", default="127.0.0.1:15090", help="address of xDS")
    parser.add_argument("--namespace", default="consul", help="namespace of the ServiceEntries")
    parser.add_argument("--token", default="", help="token for Consul's ACLs")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
