"""Configuration from a server of objects over xDS: every answer has all objects of a kind, of which only those that changed are decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pilot.config.kind import AnyKind
from pilot.config.problem import ObjectRef, Problem, Severity, error
from pilot.ingest.decode import Decoded, DocumentOrigin, Row, decode_object
from pilot.ingest.kube_objects import AT_ONCE, EditSink
from pilot.ingest.ledger import Ledger, SourceLedger
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.problems import ProblemStore
from pilot.lib.log import scope
from pilot.mcp import wire
from pilot.mcp.object_types import ObjectType

_log = scope("adsc")
Resource = tuple[str, bytes]
"""Type URL and value of an Any."""


class _Taken(NamedTuple):
    """A resource as it was understood: its bytes, what became of it, and the row that it is, None where it has no name."""

    row: Row | None
    decoded: Decoded
    data: bytes

    @property
    def wrong(self) -> list[Problem]:
        """Returns what keeps it from being taken."""
        return [problem for problem in self.decoded.problems if problem.severity is Severity.ERROR]


class _Followed(NamedTuple):
    """A kind that is asked for, and what came last of every row."""

    kind: AnyKind
    type: ObjectType
    ledger: SourceLedger
    last: dict[Row, _Taken]


class McpSource:
    """Takes the answers of one server into the batch. `types` are what is to be asked for; `synced` is set once each of Istio's kinds
    was answered, which are what servers of objects know.

    A resource that is wrong leaves its object as it was. While the server is away all of them stay.
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
        self._followed: dict[str, _Followed] = {}
        for kind in kinds:
            of = ObjectType(kind.id.group, kind.versions[0], kind.id.name)
            self._followed[str(of)] = _Followed(kind, of, ledger.source(rank, name), {})
        self.types = tuple(self._followed)
        self.synced = asyncio.Event()
        self._unanswered = {url for url, followed in self._followed.items() if followed.kind.is_istio}

    async def receive(self, type_url: str, resources: Sequence[Resource]) -> list[str]:
        """Takes all objects of a type; returns what is wrong with those that cannot be taken, a text each."""
        followed = self._followed.get(type_url)
        if followed is None:
            return [f"{type_url} was not asked for"]
        there: set[Row] = set()
        wrong: list[Problem] = []
        for begin in range(0, len(resources), AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            taken = [self._take(followed, *resource) for resource in resources[begin : begin + AT_ONCE]]
            await self._put(followed, taken)
            there.update(part.row for part in taken if part.row is not None)
            wrong += (problem for part in taken for problem in part.wrong)
        await self._retain(followed, there)
        self._problems.replace((self.name, type_url), [problem for problem in wrong if not problem.object.name])
        self._unanswered.discard(type_url)
        if not self._unanswered:
            self.synced.set()
        return [str(replace(problem, file="")) for problem in wrong]

    def told(self, reason: str) -> None:
        """Notes why there is no stream, "" where there is one."""
        problem = Problem(
            code="unreachable-source",
            message=f"{reason}; what it declared before stays",
            severity=Severity.WARNING,
            file=self.name,
        )
        self._problems.replace((self.name, ""), (problem,) if reason else ())

    def _take(self, followed: _Followed, type_url: str, data: bytes) -> _Taken:
        kind = followed.kind
        try:
            received = wire.decode_object(followed.type, type_url, data)
            row = self._row(kind, received.namespace, received.name)
            last = followed.last.get(row)
            if last is not None and last.data == data:
                return last
            return _Taken(row, self._placed(decode_object(kind, received.plain, self._origin)), data)
        except wire.InvalidResourceError as fault:
            return self._refused(kind, fault.namespace, fault.name, error("bad-resource", "", str(fault)), data)
        except Exception as fault:  # a bug of ours: the other objects are read nevertheless
            _log.error("%s: cannot decode a resource of %s", self.name, followed.type, exc_info=True)
            return self._refused(kind, "", "", error("internal-error", "", f"{type(fault).__name__}: {fault}"), data)

    def _refused(self, kind: AnyKind, namespace: str, name: str, problem: Problem, data: bytes) -> _Taken:
        """Returns a resource that could not be read, whose object stays as it was."""
        row = self._row(kind, namespace, name) if name else None
        decoded = Decoded(
            problems=(replace(problem, object=ObjectRef(kind.id, namespace, name)),),
            refused=(row,) if row is not None else (),
        )
        return _Taken(row, self._placed(decoded), data)

    def _placed(self, decoded: Decoded) -> Decoded:
        """Returns what was decoded, with problems that say where they come from."""
        return decoded._replace(problems=tuple(replace(problem, file=self.name) for problem in decoded.problems))

    def _row(self, kind: AnyKind, namespace: str, name: str) -> Row:
        within = (namespace or "default") if kind.namespaced else ""
        return kind.table_name, kind.key(self._origin.cluster, within, name)

    async def _put(self, followed: _Followed, taken: Iterable[_Taken]) -> None:
        """Puts what came into the batch, but what is as it was last."""
        async with followed.ledger.turn:
            edits: list[Edit] = []
            for part in taken:
                if part.row is not None and followed.last.get(part.row) is not part:
                    edits += followed.ledger.put(part.row, part.decoded)
                    followed.last[part.row] = part
            self._batch.put(edits)

    async def _retain(self, followed: _Followed, there: set[Row]) -> None:
        """Takes back the objects that an answer does not have any more."""
        async with followed.ledger.turn:
            self._batch.put(followed.ledger.retain(there))
        for row in followed.last.keys() - there:
            del followed.last[row]
