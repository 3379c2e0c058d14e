"""What is wrong with each object, in its status, where its user looks: `kubectl get` shows it without any other tool.

Problems are those that the logs and /debug/problemz have. They are written at intervals, all that came together, and only where the status
says something else; a status that is written changes no specification, so nothing follows from it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.controllers.reconciler import Upkeep
from pilot.ingest.problems import ProblemStore
from pilot.kube.client import ApiClient
from pilot.kube.errors import KubeError, NotFound
from pilot.kube.informer import PAGE_SIZE
from pilot.lib.backoff import Backoff
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks

MERGE_PATCH = "application/merge-patch+json"
GROUP = "istio.io"
MOST = 100
"""Messages of one object: its status is not to grow without end."""
_log = scope("analysis")
Message = dict[str, Any]


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    generation: int = 0
    next: str = msgspec.field(default="", name="continue")


class _Status(msgspec.Struct, rename="camel"):
    validation_messages: list[Message] | None = None
    observed_generation: int | str | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _Status | None = None


class _Page(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    items: list[_Object] | None = None


class Analysis:
    """Writes statuses while it runs, every `interval` seconds. `path` returns the path of an object at the API server, "" while its kind is not
    read there; `kinds` returns those that are read. `edited` says that an object has another specification now."""

    def __init__(
        self,
        client: ApiClient,
        problems: ProblemStore,
        path: Callable[[ObjectRef], str],
        kinds: Callable[[], Iterable[GroupKind]],
        interval: float,
        backoff: Backoff,
        choose: random.Random,
    ) -> None:
        self._client, self._problems, self._path, self._kinds, self._interval = client, problems, path, kinds, interval
        self._upkeep: Upkeep[ObjectRef] = Upkeep("status of", self._settle, backoff, choose)
        self._wanted: Mapping[ObjectRef, list[Message]] = {}
        self._edited: set[ObjectRef] = set()
        self._looked_at = -1

    def edited(self, refs: Iterable[ObjectRef]) -> None:
        """Takes note of objects that may be of another generation now; those without problems do not matter."""
        self._edited.update(ref for ref in refs if ref in self._wanted)

    async def run(self) -> None:
        """Keeps statuses as they should be until it is cancelled. It begins with those that a leader of before has left."""
        writing = asyncio.create_task(self._upkeep.run(), name="write statuses")
        try:
            self._looked_at = -1
            self._look()
            await self._find_left()
            while True:
                await asyncio.sleep(self._interval)
                self._look()
        finally:
            await cancel_tasks(writing)

    def _look(self) -> None:
        """Marks the objects whose problems, or whose specifications, are others than the last time."""
        edited, self._edited = self._edited, set()
        if self._looked_at != self._problems.revision:
            self._looked_at = self._problems.revision
            before, self._wanted = self._wanted, messages_of(self._problems)
            edited |= {ref for ref in before.keys() | self._wanted.keys() if before.get(ref) != self._wanted.get(ref)}
        self._upkeep.look_at(sorted(edited))

    async def _find_left(self) -> None:
        """Marks the objects whose status has messages."""
        for kind in self._kinds():
            if kind.group.endswith(GROUP):
                try:
                    self._upkeep.look_at([ref async for ref in self._with_messages(kind)])
                except KubeError as error:
                    _log.warning("statuses of %s that are to be taken away are not known: %s", kind, error)

    async def _with_messages(self, kind: GroupKind) -> Any:
        collection = self._path(ObjectRef(kind, "", "x")).removesuffix("/x")
        more = ""
        while collection:
            query = {"limit": str(PAGE_SIZE), **({"continue": more} if more else {})}
            page = msgspec.json.decode(await self._client.call("GET", collection, query), type=_Page)
            for found in page.items or ():
                if found.status is not None and found.status.validation_messages:
                    yield ObjectRef(kind, found.metadata.namespace, found.metadata.name)
            more = page.metadata.next
            if not more:
                return

    async def _settle(self, ref: ObjectRef) -> None:
        """Writes the messages of one object, where its status has others."""
        path, wanted = self._path(ref), self._wanted.get(ref, [])
        if not path:
            return
        try:
            found = msgspec.json.decode(await self._client.call("GET", path), type=_Object)
            status = found.status or _Status()
            if (status.validation_messages or []) == wanted and (
                not wanted or str(status.observed_generation) == str(found.metadata.generation)
            ):
                return
            written = {"validationMessages": wanted or None, "observedGeneration": found.metadata.generation}
            await self._client.call(
                "PATCH", f"{path}/status", body=msgspec.json.encode({"status": written}), content_type=MERGE_PATCH
            )
        except NotFound:  # it has just gone
            return


def messages_of(problems: Iterable[Problem]) -> dict[ObjectRef, list[Message]]:
    """Returns the messages of each object of our kinds that has any, in an order that depends on them alone."""
    found: dict[ObjectRef, list[Problem]] = {}
    for problem in problems:
        if problem.object.name and problem.object.kind.group.endswith(GROUP):
            found.setdefault(problem.object, []).append(problem)
    return {ref: list(_messages(listed)) for ref, listed in found.items()}


def _messages(problems: Sequence[Problem]) -> Iterator[Message]:
    """Yields messages in the form that Istio's have, with the place and the text beside it."""
    for problem in sorted(problems, key=lambda p: (p.path, p.code, p.message))[:MOST]:
        name = "".join(word.capitalize() for word in problem.code.split("-"))
        yield {
            "type": {"code": problem.code, "name": name},
            "level": problem.severity.upper(),
            **({"path": problem.path} if problem.path else {}),
            "message": problem.message,
        }
