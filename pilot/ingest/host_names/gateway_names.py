"""Resolves the hostnames of network gateways, and resolves them again when the DNS records expire.

If a lookup fails, the last addresses stay in use, because they probably still work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.derive import UNSET, Node
from pilot.ingest.batch import Batch
from pilot.ingest.host_names.lookup import LookupFailed, ResolvedName
from pilot.ingest.problems import ProblemStore
from pilot.lib.logging.log import scope
from pilot.mesh.registry.networks import gateway_hosts
from pilot.mesh.tables.database import RESOLVED_HOSTS, Mesh

SHORTEST, LONGEST = 30.0, 3600.0
"""Minimum and maximum number of seconds between two lookups of a name. Every change of an address causes a push."""
FIRST_SECONDS = 5.0
"""Maximum wait for the first lookups at startup."""
_NETWORKS = ObjectRef(GroupKind("", "MeshNetworks"))
_log = scope("model")


class NameLookup(Protocol):
    async def look_up(self, name: str, /) -> ResolvedName: ...


class GatewayNames:
    """Keeps the table of resolved hostnames up to date. Tests replace `sleep`."""

    def __init__(
        self,
        db: Mesh,
        batch: Batch,
        names: NameLookup,
        problems: ProblemStore,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._db, self._batch, self._names, self._problems, self._sleep = db, batch, names, problems, sleep
        self._hosts = db.watch(gateway_hosts)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._tried: dict[str, asyncio.Event] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._started = False

    async def start(self) -> None:
        """Start all lookups, and wait briefly for the results so that the first proxies receive the addresses."""
        self._started = True
        self._list()
        if waiting := [asyncio.ensure_future(event.wait()) for event in self._tried.values()]:
            await asyncio.wait(waiting, timeout=FIRST_SECONDS)
            for task in waiting:
                task.cancel()
            self._batch.flush()

    async def stop(self) -> None:
        """Cancel all lookups."""
        tasks, self._tasks, self._started = list(self._tasks.values()), {}, False
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def reached(self, nodes: Iterable[Node]) -> None:
        """Refresh the list of names if its node is in `nodes`, the nodes that a commit affects."""
        if self._started and self._hosts in nodes:
            self._list()

    def _list(self) -> None:
        """Start lookups for new names, and drop names that are no longer in use."""
        self._db.refresh(self._hosts)
        hosts: frozenset[str] = frozenset() if self._hosts.value is UNSET else self._hosts.value
        for host in sorted(self._tasks.keys() - hosts):
            self._tasks.pop(host).cancel()
            del self._tried[host]
            self._problems.replace(_place(host), ())
            if self._addresses.pop(host, None) is not None:
                self._batch.put([(RESOLVED_HOSTS, host, None)])
        for host in sorted(hosts - self._tasks.keys()):
            self._tried[host] = asyncio.Event()
            self._tasks[host] = asyncio.get_running_loop().create_task(self._refresh(host, self._tried[host]))

    async def _refresh(self, host: str, tried: asyncio.Event) -> None:
        while True:
            seconds = SHORTEST
            try:
                result = await self._names.look_up(host)
            except LookupFailed as error:
                self._failed(host, str(error))
            except Exception:
                _log.exception("cannot look up %s", host)
                self._failed(host, "internal error")
            else:
                self._resolved(host, result.addresses)
                seconds = min(max(result.seconds, SHORTEST), LONGEST)
            tried.set()
            await self._sleep(seconds)

    def _resolved(self, host: str, addresses: tuple[str, ...]) -> None:
        if self._addresses.get(host) != addresses:
            _log.info("gateway %s resolves to %s", host, ", ".join(addresses))
            self._addresses[host] = addresses
            self._batch.put([(RESOLVED_HOSTS, host, addresses)])
        self._problems.replace(_place(host), ())

    def _failed(self, host: str, reason: str) -> None:
        addresses = self._addresses.get(host)
        outcome = f"still using {', '.join(addresses)}" if addresses else "endpoints behind it are unreachable"
        message = f"cannot resolve gateway {host}: {reason}; {outcome}"
        self._problems.replace(
            _place(host),
            (Problem(code="gateway-not-resolved", object=_NETWORKS, message=message, severity=Severity.WARNING),),
        )


def _place(host: str) -> tuple[str, str]:
    return "host names of gateways", host
