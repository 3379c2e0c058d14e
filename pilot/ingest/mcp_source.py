"""Reads configuration from an MCP-over-xDS server.

A response contains all objects of a kind, but only changed objects are decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pilot.config.kind import AnyKind
from pilot.config.problem import ObjectRef, Problem, Severity, error
from pilot.ingest.cluster.kube_objects import EditSink
from pilot.ingest.decode import Decoded, DocumentOrigin, Row, decode_object
from pilot.ingest.ledger import Ledger, SourceLedger
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.object_decoder import large_size, slices
from pilot.ingest.problems import ProblemStore
from pilot.lib.logging.log import scope
from pilot.lib.time_slice import time_slice
from pilot.mcp import wire
from pilot.mcp.object_types import ObjectType

_log = scope("adsc")
Resource = tuple[str, bytes]
"""The type URL and the value of an Any message."""


class _Received(NamedTuple):
    """A received resource: its bytes, the decoded object, and its row, which is None if the resource has no name."""

    row: Row | None
    decoded: Decoded
    data: bytes

    @property
    def wrong(self) -> list[Problem]:
        """Return the errors that make the resource invalid."""
        return [problem for problem in self.decoded.problems if problem.severity is Severity.ERROR]


class _Subscription(NamedTuple):
    """A subscribed kind, and the last resource for each row."""

    kind: AnyKind
    type: ObjectType
    ledger: SourceLedger
    last: dict[Row, _Received]


class McpSource:
    """Puts the objects in a server's responses into the batch.

    `types` contains the type URLs to subscribe to. `synced` is set once all Istio kinds have been received, because a
    server may not support other kinds. If a resource is invalid, the last valid version of its object stays in force.
    All objects stay in force while the server is unreachable.
    """

    def __init__(
        self,
        name: str,
        kinds: Iterable[AnyKind],
        batch: EditSink,
        ledger: Ledger,
        rank: int,
        origin: DocumentOrigin,
        problems: ProblemStore,
    ) -> None:
        self.name, self._batch, self._origin, self._problems = name, batch, origin, problems
        self._subscriptions: dict[str, _Subscription] = {}
        for kind in kinds:
            of = ObjectType(kind.id.group, kind.versions[0], kind.id.name)
            self._subscriptions[str(of)] = _Subscription(kind, of, ledger.source(rank, name), {})
        self.types = tuple(self._subscriptions)
        self.synced = asyncio.Event()
        self._unanswered = {url for url, subscription in self._subscriptions.items() if subscription.kind.is_istio}

    async def receive(self, type_url: str, resources: Sequence[Resource]) -> list[str]:
        """Set all objects of a type, and return an error message for each invalid resource."""
        subscription = self._subscriptions.get(type_url)
        if subscription is None:
            return [f"no subscription for {type_url}"]
        present: set[Row] = set()
        wrong: list[Problem] = []
        for slice_ in slices(resources, lambda resource: len(resource[1])):
            await asyncio.sleep(0)
            is_over, received = time_slice(), list[_Received]()
            for resource in slice_:
                received.append(await self._take_any(subscription, *resource))
                if is_over():
                    await asyncio.sleep(0)
                    is_over = time_slice()
            await self._put(subscription, received)
            present.update(part.row for part in received if part.row is not None)
            wrong += (problem for part in received for problem in part.wrong)
        await self._retain(subscription, present)
        self._problems.replace((self.name, type_url), [problem for problem in wrong if not problem.object.name])
        self._unanswered.discard(type_url)
        if not self._unanswered:
            self.synced.set()
        return [str(replace(problem, file="")) for problem in wrong]

    def told(self, reason: str) -> None:
        """Report whether the server is connected. `reason` is "" if it is connected, and otherwise tells why not."""
        problem = Problem(
            code="unreachable-source",
            message=f"{reason}; its last valid objects stay in force" if self.synced.is_set() else reason,
            severity=Severity.WARNING,
            file=self.name,
        )
        self._problems.replace((self.name, ""), (problem,) if reason else ())

    async def _take_any(self, subscription: _Subscription, type_url: str, data: bytes) -> _Received:
        """Decode a resource. A large one is decoded in a thread, so that it holds up nothing else."""
        if len(data) < large_size(subscription.kind):
            return self._take(subscription, type_url, data)
        return await asyncio.to_thread(self._take, subscription, type_url, data)

    def _take(self, subscription: _Subscription, type_url: str, data: bytes) -> _Received:
        kind = subscription.kind
        try:
            received = wire.decode_object(subscription.type, type_url, data)
            row = self._row(kind, received.namespace, received.name)
            last = subscription.last.get(row)
            if last is not None and last.data == data:
                return last
            return _Received(row, self._placed(decode_object(kind, received.plain, self._origin)), data)
        except wire.InvalidResourceError as fault:
            return self._refused(kind, fault.namespace, fault.name, error("bad-resource", "", str(fault)), data)
        except Exception as fault:  # an internal error must not affect other objects
            _log.error("%s: cannot decode a resource of %s", self.name, subscription.type, exc_info=True)
            return self._refused(kind, "", "", error("internal-error", "", f"{type(fault).__name__}: {fault}"), data)

    def _refused(self, kind: AnyKind, namespace: str, name: str, problem: Problem, data: bytes) -> _Received:
        """Return an invalid resource, which leaves the last valid version of its object in force."""
        row = self._row(kind, namespace, name) if name else None
        decoded = Decoded(
            problems=(replace(problem, object=ObjectRef(kind.id, namespace, name)),),
            refused=(row,) if row is not None else (),
        )
        return _Received(row, self._placed(decoded), data)

    def _placed(self, decoded: Decoded) -> Decoded:
        """Return a decoded resource whose problems contain the name of the server."""
        return decoded._replace(problems=tuple(replace(problem, file=self.name) for problem in decoded.problems))

    def _row(self, kind: AnyKind, namespace: str, name: str) -> Row:
        within = (namespace or "default") if kind.namespaced else ""
        return kind.table_name, kind.key(self._origin.cluster, within, name)

    async def _put(self, subscription: _Subscription, received: Iterable[_Received]) -> None:
        """Put changed resources into the batch."""
        async with subscription.ledger.turn:
            edits: list[Edit] = []
            for part in received:
                if part.row is not None and subscription.last.get(part.row) is not part:
                    edits += subscription.ledger.put(part.row, part.decoded)
                    subscription.last[part.row] = part
            self._batch.put(edits)

    async def _retain(self, subscription: _Subscription, present: set[Row]) -> None:
        """Remove the objects that are missing from a response."""
        async with subscription.ledger.turn:
            self._batch.put(subscription.ledger.retain(present))
        for row in subscription.last.keys() - present:
            del subscription.last[row]
