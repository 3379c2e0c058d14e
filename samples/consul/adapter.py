"""Serve the catalog of a Consul agent as ServiceEntries over xDS.

python -m samples.consul.adapter --consul http://127.0.0.1:8500 --listen 127.0.0.1:15090 --namespace consul
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping

from grpc import aio

from samples.consul.catalog_watch import CatalogWatch, Instances
from samples.consul.entries import build_entry
from samples.consul.entry_server import EntryServer


class Adapter:
    """Watches Consul and serves its services. `port` is the port of the xDS server once it is started."""

    def __init__(self, consul: str, listen: str, namespace: str = "consul", headers: Mapping[str, str] = {}) -> None:
        self._listen, self._namespace, self.port = listen, namespace, 0
        self._entries = EntryServer()
        self._catalog = CatalogWatch(consul, self._service_changed, headers)
        self._watch: asyncio.Task[None] | None = None
        self._server = aio.server()

    async def start(self) -> None:
        """Start the server once all services are known, so that no client sees an incomplete list."""
        self._watch = asyncio.create_task(self._catalog.run())
        await self._catalog.synced.wait()
        self._server.add_generic_rpc_handlers((self._entries.handlers(),))
        self.port = self._server.add_insecure_port(self._listen)
        await self._server.start()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await self._server.stop(None)

    def _service_changed(self, name: str, instances: Instances) -> None:
        self._entries.put(name, build_entry(name, instances, self._namespace))


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
    parser = argparse.ArgumentParser(description="Serve the catalog of a Consul agent as ServiceEntries over xDS.")
    parser.add_argument("--consul", default="http://127.0.0.1:8500", help="URL of the agent's HTTP API")
    parser.add_argument("--listen", default="127.0.0.1:15090", help="address of the xDS server")
    parser.add_argument("--namespace", default="consul", help="namespace of the ServiceEntries")
    parser.add_argument("--token", default="", help="ACL token for Consul")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
