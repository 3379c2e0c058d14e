"""Follows the host names of gateways: looks each up, again when its addresses do not hold any more, and puts them into a table.

The last good addresses stay where a name cannot be looked up: a gateway that was there is more likely than none.
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
from pilot.lib.log import scope
from pilot.mesh.registry.networks import gateway_hosts
from pilot.mesh.tables.database import RESOLVED_HOSTS, Mesh

SHORTEST, LONGEST = 30.0, 3600.0
"""Seconds between two lookups of a name, whatever its records say: proxies are sent what changes."""
FIRST_SECONDS = 5.0
"""Longest wait at the start for names that are not known yet."""
_NETWORKS = ObjectRef(GroupKind("", "MeshNetworks"))
_log = scope("model")


class NameLookup(Protocol):
    async def look_up(self, name: str, /) -> ResolvedName: ...


class GatewayNames:
    """A part of the process. `sleep` is the loop's; a test has its own."""

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
        self._wanted = db.watch(gateway_hosts)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._tried: dict[str, asyncio.Event] = {}
        self._known: dict[str, tuple[str, ...]] = {}
        self._started = False

    async def start(self) -> None:
        """Looks up what there is, and waits a moment for it, so that the first proxies have it."""
        self._started = True
        self._list()
        if waiting := [asyncio.ensure_future(event.wait()) for event in self._tried.values()]:
            await asyncio.wait(waiting, timeout=FIRST_SECONDS)
            for one in waiting:
                one.cancel()
            self._batch.flush()

    async def stop(self) -> None:
        """Ends all lookups."""
        tasks, self._tasks, self._started = list(self._tasks.values()), {}, False
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def reached(self, nodes: Iterable[Node]) -> None:
        """Takes note of a commit: the watched nodes that it may have changed, of whatever kind."""
        if self._started and self._wanted in nodes:
            self._list()

    def _list(self) -> None:
        """Takes the new list of names: follows those that are new, and forgets those that nobody has any more."""
        self._db.refresh(self._wanted)
        wanted: frozenset[str] = frozenset() if self._wanted.value is UNSET else self._wanted.value
        for host in sorted(self._tasks.keys() - wanted):
            self._tasks.pop(host).cancel()
            del self._tried[host]
            self._problems.replace(_place(host), ())
            if self._known.pop(host, None) is not None:
                self._batch.put([(RESOLVED_HOSTS, host, None)])
        for host in sorted(wanted - self._tasks.keys()):
            self._tried[host] = asyncio.Event()
            self._tasks[host] = asyncio.get_running_loop().create_task(self._follow(host, self._tried[host]))

    async def _follow(self, host: str, tried: asyncio.Event) -> None:
        while True:
            seconds = SHORTEST
            try:
                found = await self._names.look_up(host)
            except LookupFailed as error:
                self._failed(host, str(error))
            except Exception:
                _log.exception("cannot look up %s", host)
                self._failed(host, "an error of the control plane's own")
            else:
                self._found(host, found.addresses)
                seconds = min(max(found.seconds, SHORTEST), LONGEST)
            tried.set()
            await self._sleep(seconds)

    def _found(self, host: str, addresses: tuple[str, ...]) -> None:
        if self._known.get(host) != addresses:
            _log.info("the gateway %s is at %s", host, ", ".join(addresses))
            self._known[host] = addresses
            self._batch.put([(RESOLVED_HOSTS, host, addresses)])
        self._problems.replace(_place(host), ())

    def _failed(self, host: str, reason: str) -> None:
        known = self._known.get(host)
        outcome = f"it is taken to be at {', '.join(known)} still" if known else "endpoints behind it are not reached"
        message = f"the gateway {host} cannot be looked up: {reason}; {outcome}"
        self._problems.replace(
            _place(host),
            (Problem(code="gateway-not-resolved", object=_NETWORKS, message=message, severity=Severity.WARNING),),
        )


def _place(host: str) -> tuple[str, str]:
    return "host names of gateways", host
