"""Remembers the addresses that were allocated to hosts of ServiceEntries, so that they do not change.

Without an API server, no status contains them. They are written to a table and, if there is a state folder, to a file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping

import msgspec

from pilot.config.object import ObjectKey
from pilot.derive import UNSET, Node
from pilot.ingest.batch import Batch
from pilot.ingest.files.file_io import write_file
from pilot.lib.logging.log import scope
from pilot.mesh.registry.auto_addresses import NO_HOSTS, HostAddresses, allocated_addresses
from pilot.mesh.tables.database import ALLOCATED_ADDRESSES, REMEMBERED, Mesh

FILE = "addresses.json"
MOST_FORMER = 10_000
"""Maximum number of hosts without a ServiceEntry whose addresses are remembered. The oldest are dropped."""
_log = scope("model")


class RememberedHost(msgspec.Struct, frozen=True):
    """The addresses of a ServiceEntry's host, as they are stored."""

    namespace: str
    name: str
    host: str
    addresses: tuple[str, ...]


class AddressMemory:
    """Keeps the table of allocated addresses up to date. If `state_folder` is "", they are forgotten at exit."""

    def __init__(self, db: Mesh, batch: Batch, state_folder: str) -> None:
        self._db, self._batch = db, batch
        self._path = os.path.join(state_folder, FILE) if state_folder else ""
        self._node = db.watch(allocated_addresses)
        self._addresses: HostAddresses = {}
        self._writing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the file, before any configuration is read."""
        hosts = await asyncio.to_thread(self._read_file) if self._path else []
        if hosts:
            addresses: dict[ObjectKey, dict[str, tuple[str, ...]]] = {}
            for h in hosts:
                addresses.setdefault(ObjectKey(h.namespace, h.name), {})[h.host] = h.addresses
            self._addresses = addresses
            self._db.commit([(self._db.allocated_addresses, REMEMBERED, self._addresses)])

    def reached(self, nodes: Iterable[Node]) -> None:
        """Remember new addresses if the node of all addresses is in `nodes`, the nodes that a commit affects."""
        if self._node not in nodes:
            return
        self._db.refresh(self._node)
        allocated: HostAddresses = {} if self._node.value is UNSET else self._node.value
        addresses = _merge(self._addresses, allocated)
        if addresses == self._addresses:
            return
        self._addresses = addresses
        self._batch.put([(ALLOCATED_ADDRESSES, REMEMBERED, addresses)])
        if self._path and self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    async def stop(self) -> None:
        """Wait until the file is written."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        """Write the file until it is up to date."""
        written: HostAddresses | None = None
        while written is not self._addresses:
            written = self._addresses
            try:
                await asyncio.to_thread(self._write_file, written)
            except OSError as fault:
                _log.error("cannot write the allocated addresses to %s: %s", self._path, fault.strerror or fault)
        self._writing = None

    def _read_file(self) -> list[RememberedHost]:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=list[RememberedHost])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError, ValueError) as fault:
            _log.error("cannot read the allocated addresses in %s: %s", self._path, fault)
            return []

    def _write_file(self, addresses: HostAddresses) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        hosts = [
            RememberedHost(*key, host, values) for key, by_host in addresses.items() for host, values in by_host.items()
        ]
        write_file(self._path, msgspec.json.encode(hosts))


def _merge(former: HostAddresses, current: HostAddresses) -> HostAddresses:
    """Return the current addresses, after those of hosts that have none now.

    A ServiceEntry whose hosts and addresses are the former ones keeps its mapping.
    """
    gone: dict[ObjectKey, Mapping[str, tuple[str, ...]]] = {}
    for key, addresses in former.items():
        now = current.get(key, NO_HOSTS)
        lost = {h: a for h, a in addresses.items() if not now.get(h)} if now and now is not addresses else addresses
        if lost and now is not addresses:
            gone[key] = lost
    excess = sum(map(len, gone.values())) - MOST_FORMER
    for key in tuple(gone) if excess > 0 else ():
        hosts = tuple(gone[key])[max(excess, 0) :]
        excess -= len(gone[key]) - len(hosts)
        gone[key] = {host: gone[key][host] for host in hosts}
    merged = {key: hosts for key, hosts in gone.items() if hosts and key not in current}
    for key, addresses in current.items():
        lost, is_complete = gone.get(key, NO_HOSTS), all(addresses.values())
        merged[key] = addresses if is_complete and not lost else {**lost, **{h: a for h, a in addresses.items() if a}}
    return merged
