"""Writes the problems of each object into its status, so that `kubectl get` shows them.

The problems are the same as in the logs and in /debug/problemz. They are written periodically, and only if the status
differs. A status update does not change the specification, so it does not cause another update.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.controllers.reconciler import Reconciler
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import KubeError, NotFound
from pilot.kube.deep_json import decode_any_depth
from pilot.kube.pages import read_pages
from pilot.lib.backoff import Backoff
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks

MERGE_PATCH = "application/merge-patch+json"
ISTIO_GROUP = "istio.io"
MAX_MESSAGES = 100
"""Maximum number of messages in the status of an object."""
_log = scope("analysis")
Message = dict[str, Any]


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    generation: int = 0


class _Status(msgspec.Struct, rename="camel"):
    validation_messages: list[Message] | None = None
    observed_generation: int | str | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _Status | None = None


_decode_object = msgspec.json.Decoder(_Object).decode


class AnalysisStatusController:
    """Writes statuses every `interval` seconds.

    `path_of` returns the API path of an object, or "" if its kind is not available. `kinds` returns the available
    kinds.
    """

    def __init__(
        self,
        client: ApiClient,
        problems: ProblemStore,
        path_of: Callable[[ObjectRef], str],
        kinds: Callable[[], Iterable[GroupKind]],
        interval: float,
        backoff: Backoff,
        rng: random.Random,
    ) -> None:
        self._client, self._problems, self._path_of, self._kinds = client, problems, path_of, kinds
        self._interval = interval
        self._reconciler: Reconciler[ObjectRef] = Reconciler("status of", self._reconcile, backoff, rng)
        self._messages: Mapping[ObjectRef, list[Message]] = {}
        self._edited: set[ObjectRef] = set()
        self._revision = -1

    def on_edit(self, refs: Iterable[ObjectRef]) -> None:
        """Record objects whose generation may have changed. Objects without problems are ignored."""
        self._edited.update(ref for ref in refs if ref in self._messages)

    async def run(self) -> None:
        """Write statuses until cancelled. Start with the statuses that a previous leader wrote."""
        writing = asyncio.create_task(self._reconciler.run(), name="write statuses")
        try:
            self._revision = -1
            self._enqueue_changed()
            await self._enqueue_existing()
            while True:
                await asyncio.sleep(self._interval)
                self._enqueue_changed()
        finally:
            await cancel_tasks(writing)

    def _enqueue_changed(self) -> None:
        """Enqueue the objects whose problems or specification changed since the last call."""
        refs, self._edited = self._edited, set()
        if self._revision != self._problems.revision:
            self._revision = self._problems.revision
            before, self._messages = self._messages, messages_of(self._problems)
            refs |= {ref for ref in before.keys() | self._messages.keys() if before.get(ref) != self._messages.get(ref)}
        self._reconciler.enqueue(sorted(refs))

    async def _enqueue_existing(self) -> None:
        """Enqueue the objects whose status contains messages."""
        for kind in self._kinds():
            if kind.group.endswith(ISTIO_GROUP):
                try:
                    self._reconciler.enqueue([ref async for ref in self._refs_with_messages(kind)])
                except (KubeError, msgspec.MsgspecError) as error:
                    _log.warning("cannot list %s to remove outdated messages: %s", kind, error)

    async def _refs_with_messages(self, kind: GroupKind) -> Any:
        collection = self._path_of(ObjectRef(kind, "", "x")).removesuffix("/x")
        if not collection:
            return

        async def fetch(query: dict[str, str], largest: int) -> bytes:
            return await self._client.call("GET", collection, query, largest=largest)

        async for page in read_pages(fetch):
            for raw in page.items or ():
                item = await decode_any_depth(_decode_object, raw)
                if item.status is not None and item.status.validation_messages:
                    yield ObjectRef(kind, item.metadata.namespace, item.metadata.name)

    async def _reconcile(self, ref: ObjectRef) -> None:
        """Write the messages of one object if its status differs."""
        path, messages = self._path_of(ref), self._messages.get(ref, [])
        if not path:
            return
        try:
            existing = await decode_any_depth(_decode_object, await self._client.call("GET", path))
            status = existing.status or _Status()
            if (status.validation_messages or []) == messages and (
                not messages or str(status.observed_generation) == str(existing.metadata.generation)
            ):
                return
            patch = {"validationMessages": messages or None, "observedGeneration": existing.metadata.generation}
            await self._client.call(
                "PATCH", f"{path}/status", body=msgspec.json.encode({"status": patch}), content_type=MERGE_PATCH
            )
        except NotFound:  # deleted meanwhile
            return


def messages_of(problems: Iterable[Problem]) -> dict[ObjectRef, list[Message]]:
    """Return the messages for each Istio object that has problems, in a stable order."""
    by_object: dict[ObjectRef, list[Problem]] = {}
    for problem in problems:
        if problem.object.name and problem.object.kind.group.endswith(ISTIO_GROUP):
            by_object.setdefault(problem.object, []).append(problem)
    return {ref: list(_messages(group)) for ref, group in by_object.items()}


def _messages(problems: Sequence[Problem]) -> Iterator[Message]:
    """Yield messages in Istio's format. The path and the text of the problem are added."""
    for problem in sorted(problems, key=lambda p: (p.path, p.code, p.message))[:MAX_MESSAGES]:
        name = "".join(word.capitalize() for word in problem.code.split("-"))
        yield {
            "type": {"code": problem.code, "name": name},
            "level": problem.severity.upper(),
            **({"path": problem.path} if problem.path else {}),
            "message": problem.message,
        }
