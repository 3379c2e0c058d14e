"""Fetches the key sets that RequestAuthentications refer to, refreshes them, and writes them to their table.

If a fetch fails, the last keys stay in use for at most a week. If an issuer has no keys, its tokens are rejected.

Users who may write RequestAuthentications in a namespace choose the servers from which keys are fetched. Each namespace
therefore has its own limits for the number of concurrent fetches, the number of key sets and their total size. A key
set that several namespaces refer to counts towards the namespace with the fewest key sets.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from pilot.config.kinds.istio import REQUEST_AUTHENTICATION
from pilot.config.object import ObjectKey
from pilot.config.problem import Problem, Severity
from pilot.config.security.request_authentication import JwksKey, JwksSource
from pilot.derive import UNSET, Node
from pilot.ingest.batch import Batch
from pilot.ingest.jwks.client import KeySetError
from pilot.ingest.jwks.store import KeptKeys, KeyStore
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import Duration
from pilot.lib.logging.log import scope
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.security.jwt import remote_key_sets
from pilot.mesh.tables.database import KEY_SETS, Mesh

_log = scope("jwks")
MAX_AGE_SECONDS = 7 * 24 * 3600.0
FIRST_SECONDS = 5.0
"""Maximum wait at startup for key sets that are not in the cache."""
_RETRIES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds to wait after each consecutive failure. The last value is used for all further failures."""
LONGEST_TIMEOUT = 30.0
"""Maximum timeout of a fetch in seconds. Larger timeouts in a JWT rule are shortened to it."""
_AT_ONCE, _AT_ONCE_IN_NAMESPACE = 32, 8
MOST_IN_NAMESPACE = 1000
"""Maximum number of key sets that are fetched for a namespace."""
SIZE_IN_NAMESPACE = 16
"""Maximum total size of the key sets that are fetched for a namespace. The unit is the maximum size of one key set."""


class KeySetFetcher(Protocol):
    async def fetch(self, key: JwksKey, timeout: float, /) -> str: ...
    async def close(self) -> None: ...


class KeySets:
    """Keeps the table of key sets up to date. Tests replace `sleep` and `now`, which returns Unix seconds."""

    def __init__(
        self,
        db: Mesh,
        batch: Batch,
        client: KeySetFetcher,
        store: KeyStore,
        problems: ProblemStore,
        metrics: Metrics,
        refresh: Duration,
        largest: int,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._db, self._batch, self._client, self._store = db, batch, client, store
        self._problems, self._metrics, self._refresh = problems, metrics, refresh.seconds
        self._now, self._sleep = now, sleep
        self._sources = db.watch(remote_key_sets)
        self._timeouts: dict[JwksKey, float] = {}
        self._cache: dict[JwksKey, KeptKeys] = {}
        self._tasks: dict[JwksKey, asyncio.Task[None]] = {}
        self._tried: dict[JwksKey, asyncio.Event] = {}
        self._largest = largest
        self._sources_of: dict[JwksKey, list[JwksSource]] = {}
        self._namespaces: Mapping[JwksKey, str] = {}
        self._shares: Mapping[str, Sequence[JwksKey]] = {}
        self._slots, self._slots_of = asyncio.Semaphore(_AT_ONCE), dict[str, asyncio.Semaphore]()
        self._started = False

    async def start(self) -> None:
        """Load the cached key sets, and wait briefly for the first fetch of all others."""
        self._cache = await asyncio.to_thread(self._store.load)
        self._started = True
        self._list()
        for key in self._cache.keys() - self._tasks.keys():
            del self._cache[key]
            self._store.drop(key)
        fetches = [asyncio.ensure_future(event.wait()) for key, event in self._tried.items() if key not in self._cache]
        if fetches:
            await asyncio.wait(fetches, timeout=FIRST_SECONDS)
            for fetch in fetches:
                fetch.cancel()
        self._batch.flush()

    async def stop(self) -> None:
        """Cancel all fetches, and close the client."""
        tasks, self._tasks, self._started = list(self._tasks.values()), {}, False
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    def reached(self, nodes: Iterable[Node]) -> None:
        """Refresh the list of key sets if its node is in `nodes`, the nodes that a commit affects."""
        if self._started and self._sources in nodes:
            self._list()

    def _list(self) -> None:
        """Start fetching new key sets, and drop key sets that are no longer in use."""
        self._db.refresh(self._sources)
        sources: tuple[JwksSource, ...] = () if self._sources.value is UNSET else self._sources.value
        self._timeouts = {}
        for source in sources:
            timeout = min(source.timeout / 1e9, LONGEST_TIMEOUT)
            self._timeouts[source.key] = max(timeout, self._timeouts.get(source.key, 0.0))
        self._assign(sources)
        for key in [key for key in self._tasks if key not in self._timeouts]:
            self._tasks.pop(key).cancel()
            del self._tried[key]
            self._cache.pop(key, None)
            self._store.drop(key)
            self._batch.put([(KEY_SETS, key, None)])
            self._problems.replace(_place(key), ())
        for key in [key for key in self._timeouts if key not in self._tasks]:
            self._use_cached(key)
            self._tried[key] = asyncio.Event()
            self._tasks[key] = asyncio.get_running_loop().create_task(self._refresh_forever(key, self._tried[key]))

    def _assign(self, sources: Iterable[JwksSource]) -> None:
        """Assign each key set to one of the namespaces that refer to it, namely the one that refers to the fewest key
        sets. Drop key sets beyond the limit of a namespace.

        Key sets that are already fetched are dropped last.
        """
        self._sources_of = collections.defaultdict[JwksKey, list[JwksSource]](list)
        for source in sources:
            self._sources_of[source.key].append(source)
        namespaces = {key: {name.namespace for name in self._objects_of(key)} for key in self._sources_of}
        counts = collections.Counter(itertools.chain.from_iterable(namespaces.values()))
        shares = collections.defaultdict[str, list[JwksKey]](list)
        for key in sorted(namespaces, key=lambda key: key not in self._tasks):
            shares[min(namespaces[key], key=lambda name: (counts[name], name), default="")].append(key)
        slots = {namespace: asyncio.Semaphore(_AT_ONCE_IN_NAMESPACE) for namespace in shares} | self._slots_of
        self._slots_of = {namespace: slots[namespace] for namespace in shares}
        self._shares = {namespace: keys[:MOST_IN_NAMESPACE] for namespace, keys in shares.items()}
        self._namespaces = {key: namespace for namespace, keys in self._shares.items() for key in keys}
        self._report_excess(key for keys in shares.values() for key in keys[MOST_IN_NAMESPACE:])

    def _report_excess(self, excess: Iterable[JwksKey]) -> None:
        """Drop key sets, and report a problem for each object that refers to one of them."""
        names = set[ObjectKey]()
        for key in excess:
            del self._timeouts[key]
            names |= self._objects_of(key)
        message = (
            f"more than {MOST_IN_NAMESPACE} key sets are fetched for a namespace; tokens of further ones are rejected"
        )
        self._problems.replace(("key sets of issuers", "excess"), self._problems_at(names, message))

    def _use_cached(self, key: JwksKey) -> None:
        """Write the cached keys to the table unless they are too old."""
        cached = self._cache.get(key)
        if cached is not None and self._now() - cached.fetched < MAX_AGE_SECONDS:
            self._batch.put([(KEY_SETS, key, cached.keys)])

    async def _refresh_forever(self, key: JwksKey, tried: asyncio.Event) -> None:
        failures = 0
        while True:
            try:
                async with self._slots_of[self._namespaces[key]], self._slots:
                    text = await self._client.fetch(key, self._timeouts[key])
                self._check_size(key, text)
            except KeySetError as error:
                failures += 1
                await self._failed(key, str(error))
            except Exception:
                _log.exception("cannot fetch the keys of %s", key)
                failures += 1
                await self._failed(key, "internal error")
            else:
                failures = 0
                await self._fetched(key, text)
            tried.set()
            await self._sleep(_RETRIES[min(failures, len(_RETRIES)) - 1] if failures else self._refresh)

    def _check_size(self, key: JwksKey, text: str) -> None:
        """Raise KeySetError if a fetched key set is too large together with the others of its namespace."""
        namespace = self._namespaces[key]
        others = (self._cache[one] for one in self._shares[namespace] if one != key and one in self._cache)
        if sum(len(other.keys) for other in others) + len(text) > SIZE_IN_NAMESPACE * self._largest:
            raise KeySetError(
                f"the key sets fetched for namespace {namespace} exceed {SIZE_IN_NAMESPACE * self._largest} bytes, "
                f"{SIZE_IN_NAMESPACE} times PILOT_JWKS_MAX_BYTES"
            )

    async def _fetched(self, key: JwksKey, text: str) -> None:
        self._metrics.key_set_fetched(True)
        cached = self._cache.get(key)
        if cached is None or cached.keys != text:
            _log.info("fetched new keys for %s", key)
            self._batch.put([(KEY_SETS, key, text)])
        self._cache[key] = KeptKeys(key.issuer, key.uri, text, self._now())
        self._problems.replace(_place(key), ())
        await asyncio.to_thread(self._store.keep, self._cache[key])

    async def _failed(self, key: JwksKey, reason: str) -> None:
        """Report a failed fetch, and drop the cached keys if they are too old."""
        self._metrics.key_set_fetched(False)
        cached = self._cache.get(key)
        if cached is not None and self._now() - cached.fetched >= MAX_AGE_SECONDS:
            del self._cache[key]
            cached = None
            self._batch.put([(KEY_SETS, key, None)])
            await asyncio.to_thread(self._store.drop, key)
        outcome = "its tokens are rejected" if cached is None else "its tokens are verified with the last fetched keys"
        self._problems.replace(_place(key), self._problems_at(self._objects_of(key), f"{key}: {reason}; {outcome}"))

    def _objects_of(self, key: JwksKey) -> set[ObjectKey]:
        """Return the RequestAuthentications that refer to a key set."""
        table = REQUEST_AUTHENTICATION.table(self._db)
        return {name for source in self._sources_of.get(key, ()) for name in table.peek_keys("jwks", source)}

    def _problems_at(self, names: Iterable[ObjectKey], message: str) -> Iterable[Problem]:
        """Yield a problem for each of the RequestAuthentications in `names`."""
        table = REQUEST_AUTHENTICATION.table(self._db)
        for name in sorted(names):
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
