"""Follows the key sets that RequestAuthentications name: fetches each, again after a while, and puts it into its table.

The last good keys stay where a fetch fails, for a week at most. Keys that are not known are nobody's: tokens of their issuer are refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from pilot.config.kinds.istio import REQUEST_AUTHENTICATION
from pilot.config.problem import Problem, Severity
from pilot.config.security.request_authentication import JwksKey, JwksSource
from pilot.derive import UNSET, Node
from pilot.ingest.batch import Batch
from pilot.ingest.jwks.client import KeySetError
from pilot.ingest.jwks.store import KeptKeys, KeyStore
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import Duration
from pilot.lib.log import scope
from pilot.lib.metrics import Metrics
from pilot.mesh.security.jwt import remote_key_sets
from pilot.mesh.tables.database import KEY_SETS, Mesh

_log = scope("jwks")
KEPT_SECONDS = 7 * 24 * 3600.0
FIRST_SECONDS = 5.0
"""Longest wait at the start for key sets that are not known at all."""
_RETRIES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds after each failed fetch in a row; the last is for all further ones."""
_AT_ONCE = 8


class KeySetFetcher(Protocol):
    async def fetch(self, key: JwksKey, timeout: float, /) -> str: ...
    async def close(self) -> None: ...


class KeySets:
    """A part of the process. `sleep` and `now` (Unix seconds) are the loop's and the clock's; a test has its own."""

    def __init__(
        self,
        db: Mesh,
        batch: Batch,
        client: KeySetFetcher,
        store: KeyStore,
        problems: ProblemStore,
        metrics: Metrics,
        refresh: Duration,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._db, self._batch, self._client, self._store = db, batch, client, store
        self._problems, self._metrics, self._refresh = problems, metrics, refresh.seconds
        self._now, self._sleep = now, sleep
        self._wanted = db.watch(remote_key_sets)
        self._timeouts: dict[JwksKey, float] = {}
        self._kept: dict[JwksKey, KeptKeys] = {}
        self._tasks: dict[JwksKey, asyncio.Task[None]] = {}
        self._tried: dict[JwksKey, asyncio.Event] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._started = False

    async def start(self) -> None:
        """Takes the key sets of before the restart, and waits a moment for those that are not known."""
        self._kept = await asyncio.to_thread(self._store.load)
        self._started = True
        self._list()
        for key in self._kept.keys() - self._tasks.keys():
            del self._kept[key]
            self._store.drop(key)
        unknown = [asyncio.ensure_future(event.wait()) for key, event in self._tried.items() if key not in self._kept]
        if unknown:
            await asyncio.wait(unknown, timeout=FIRST_SECONDS)
            for waiting in unknown:
                waiting.cancel()
        self._batch.flush()

    async def stop(self) -> None:
        """Ends all fetches."""
        tasks, self._tasks, self._started = list(self._tasks.values()), {}, False
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    def reached(self, nodes: Iterable[Node]) -> None:
        """Takes note of a commit: the watched nodes that it may have changed, of whatever kind."""
        if self._started and self._wanted in nodes:
            self._list()

    def _list(self) -> None:
        """Takes the new list of key sets: follows those that are new, and forgets those that nobody names any more."""
        self._db.refresh(self._wanted)
        sources: tuple[JwksSource, ...] = () if self._wanted.value is UNSET else self._wanted.value
        self._timeouts = {}
        for source in sources:
            self._timeouts[source.key] = max(source.timeout / 1e9, self._timeouts.get(source.key, 0.0))
        for key in [key for key in self._tasks if key not in self._timeouts]:
            self._tasks.pop(key).cancel()
            del self._tried[key]
            self._kept.pop(key, None)
            self._store.drop(key)
            self._batch.put([(KEY_SETS, key, None)])
            self._problems.replace(_place(key), ())
        for key in [key for key in self._timeouts if key not in self._tasks]:
            self._take_kept(key)
            self._tried[key] = asyncio.Event()
            self._tasks[key] = asyncio.get_running_loop().create_task(self._follow(key, self._tried[key]))

    def _take_kept(self, key: JwksKey) -> None:
        """Puts the keys of before into the table, unless they are too old."""
        kept = self._kept.get(key)
        if kept is not None and self._now() - kept.fetched < KEPT_SECONDS:
            self._batch.put([(KEY_SETS, key, kept.keys)])

    async def _follow(self, key: JwksKey, tried: asyncio.Event) -> None:
        failures = 0
        while True:
            try:
                async with self._gate:
                    text = await self._client.fetch(key, self._timeouts[key])
            except KeySetError as error:
                failures += 1
                await self._failed(key, str(error))
            except Exception:
                _log.exception("cannot fetch the keys of %s", key)
                failures += 1
                await self._failed(key, "an error of the control plane's own")
            else:
                failures = 0
                await self._fetched(key, text)
            tried.set()
            await self._sleep(_RETRIES[min(failures, len(_RETRIES)) - 1] if failures else self._refresh)

    async def _fetched(self, key: JwksKey, text: str) -> None:
        self._metrics.key_set_fetched(True)
        known = self._kept.get(key)
        if known is None or known.keys != text:
            _log.info("new keys of %s", key)
            self._batch.put([(KEY_SETS, key, text)])
        self._kept[key] = KeptKeys(key.issuer, key.uri, text, self._now())
        self._problems.replace(_place(key), ())
        await asyncio.to_thread(self._store.keep, self._kept[key])

    async def _failed(self, key: JwksKey, reason: str) -> None:
        """Tells of a fetch that failed, and gives up keys that are too old."""
        self._metrics.key_set_fetched(False)
        kept = self._kept.get(key)
        if kept is not None and self._now() - kept.fetched >= KEPT_SECONDS:
            del self._kept[key]
            kept = None
            self._batch.put([(KEY_SETS, key, None)])
            await asyncio.to_thread(self._store.drop, key)
        outcome = (
            "its tokens are refused" if kept is None else "its tokens are held against the last keys that were fetched"
        )
        self._problems.replace(_place(key), self._problems_of(key, f"{key}: {reason}; {outcome}"))

    def _problems_of(self, key: JwksKey, message: str) -> Iterable[Problem]:
        """Yields a problem for each object that names a key set."""
        table = REQUEST_AUTHENTICATION.table(self._db)
        sources = () if self._wanted.value is UNSET else self._wanted.value
        for name in sorted(
            {name for source in sources if source.key == key for name in table.peek_keys("jwks", source)}
        ):
            if (row := table.peek(name)) is not None:
                yield Problem(
                    code="keys-not-fetched",
                    object=row.ref,
                    path="spec.jwtRules",
                    message=message,
                    severity=Severity.WARNING,
                )


def _place(key: JwksKey) -> tuple[str, str]:
    return "key sets of issuers", str(key)
