"""A queue that shares a resource fairly between callers."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


MAX_IDLE = 1000
"""Maximum number of additional keys whose amounts are remembered although they have no waiting items."""


class JobSource(NamedTuple):
    """The source of an item. All addresses have equal shares, and so have all namespaces of an address."""

    address: str
    namespace: str = ""


class _Shares:
    """The amount of the resource that each key has used. An arriving key starts with at least the amount of the key
    that was served last, so that it gains no advantage from its absence."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._last = 0.0

    def add(self, key: str) -> None:
        self._used[key] = max(self._used.get(key, 0.0), self._last)

    def next(self, keys: Collection[str]) -> str:
        """Return the key that has used the least of the resource."""
        if len(self._used) > len(keys) + MAX_IDLE:
            self._used = {key: self._used[key] for key in keys}
        key = min(keys, key=self._used.__getitem__)
        self._last = self._used[key]
        return key

    def charge(self, key: str, amount: float) -> None:
        self._used[key] = self._used.get(key, self._last) + amount


class JobQueue(Generic[T]):
    """Waiting items, grouped by caller. The next item belongs to the caller that has used the least of the resource.

    When no items wait, all amounts are forgotten. When no items of an address wait, the amounts of its namespaces are
    forgotten.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, deque[T]]] = {}
        self._addresses, self._namespaces = _Shares(), defaultdict[str, _Shares](_Shares)
        self._has_items = asyncio.Event()

    def put(self, caller: JobSource, item: T) -> None:
        if caller.address not in self._waiting:
            self._waiting[caller.address] = {}
            self._addresses.add(caller.address)
        namespaces = self._waiting[caller.address]
        if caller.namespace not in namespaces:
            namespaces[caller.namespace] = deque()
            self._namespaces[caller.address].add(caller.namespace)
        namespaces[caller.namespace].append(item)
        self._has_items.set()

    async def get(self) -> T:
        """Wait for an item, remove it and return it."""
        while not self._waiting:
            self._has_items.clear()
            await self._has_items.wait()
        address = self._addresses.next(self._waiting)
        namespaces = self._waiting[address]
        namespace = self._namespaces[address].next(namespaces)
        item = namespaces[namespace].popleft()
        if not namespaces[namespace]:
            del namespaces[namespace]
        if not namespaces:
            del self._waiting[address]
        return item

    def charge(self, caller: JobSource, amount: float) -> None:
        """Record that a caller used an amount of the resource, such as seconds."""
        if not self._waiting:
            self._addresses = _Shares()
            self._namespaces.clear()
            return
        self._addresses.charge(caller.address, amount)
        if caller.address in self._waiting:
            self._namespaces[caller.address].charge(caller.namespace, amount)
        else:
            self._namespaces.pop(caller.address, None)
