"""The statuses of objects of the Gateway API and of Ingresses, as they follow from the mesh.

A status is written where the object says something else, and with its resource version, so that nothing that others write meanwhile is lost.
What is written changes no specification, so nothing follows from it.
"""

from __future__ import annotations

import asyncio
import datetime
import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.object import Object
from pilot.config.problem import ObjectRef
from pilot.controllers.reconciler import Upkeep
from pilot.controllers.status_merge import Moment, Plain, merge_status
from pilot.derive import UNSET, Node
from pilot.ingest.decode import DocumentOrigin, decode_object
from pilot.ingest.namespace_filter import Edit
from pilot.kube.client import ApiClient
from pilot.kube.errors import Conflict, KubeError, NotFound
from pilot.kube.informer import PAGE_SIZE
from pilot.lib.backoff import Backoff
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.status.objects import Status, object_with_status, objects_with_status, status_of
from pilot.mesh.status.shown import MESH_CONTROLLER, show_status
from pilot.mesh.tables.database import Mesh

MERGE_PATCH = "application/merge-patch+json"
TRIES = 5
_log = scope("status")


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    generation: int = 0
    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class _Head(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: Plain | None = None


class _Page(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    items: list[msgspec.Raw] | None = None


IsOurs = Callable[[Object[Any]], bool]


class Statuses:
    """Writes the statuses of objects of some kinds while it runs. `path` returns the path of an object at the API server, "" while its kind is
    not read there; `is_ours` tells the objects of this revision.

    `committed` is told of every commit; `looked_again` says that other objects may be ours now.
    """

    def __init__(
        self,
        client: ApiClient,
        db: Mesh,
        kinds: Iterable[GroupKind],
        path: Callable[[ObjectRef], str],
        is_ours: IsOurs,
        origin: DocumentOrigin,
        backoff: Backoff,
        choose: random.Random,
    ) -> None:
        self._client, self._db, self._kinds, self._path, self._is_ours, self._origin = (
            client,
            db,
            frozenset(kinds),
            path,
            is_ours,
            origin,
        )
        self._upkeep: Upkeep[ObjectRef] = Upkeep("status of", self._settle, backoff, choose)
        self._listed: Node | None = None
        self._nodes: dict[ObjectRef, Node] = {}
        self._refs: dict[Node, ObjectRef] = {}

    # -- what may have changed -----------------------------------------------------------------------------------------

    def committed(self, hit: Iterable[Node], edits: Iterable[Edit]) -> None:
        """Marks the objects whose status may be another one now, and those that were edited, whose generation is another one."""
        if self._listed is None:
            return
        marked = {row.ref for _, _, row in edits if isinstance(row, Object) and row.kind in self._kinds}
        for node in hit:
            if node is self._listed:
                marked |= self._list()
            elif node in self._refs:
                marked.add(self._refs[node])
        self._upkeep.look_at(sorted(marked & self._nodes.keys()))

    def looked_again(self) -> None:
        """Marks all objects."""
        self._upkeep.look_at(list(self._nodes))

    def _list(self) -> set[ObjectRef]:
        """Takes the new list of objects; returns those that are new."""
        assert self._listed is not None
        self._db.refresh(self._listed)
        found = () if self._listed.value is UNSET else self._listed.value
        listed = {ref for ref in found if ref.kind in self._kinds}
        for ref in self._nodes.keys() - listed:
            node = self._nodes.pop(ref)
            del self._refs[node]
            self._db.unwatch(node)
        new = listed - self._nodes.keys()
        for ref in sorted(new):
            node = self._nodes[ref] = self._db.watch(status_of, ref)
            self._refs[node] = ref
        return new

    # -- writing -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keeps statuses as they should be until it is cancelled."""
        writing = asyncio.create_task(self._upkeep.run(), name="write statuses of the Gateway API")
        self._listed = self._db.watch(objects_with_status)
        try:
            self._list()
            await self._look_at_all()
            await asyncio.Event().wait()
        finally:
            listed, self._listed = self._listed, None
            for node in (listed, *self._refs):
                self._db.unwatch(node)
            self._nodes, self._refs = {}, {}
            await cancel_tasks(writing)

    async def _look_at_all(self) -> None:
        """Marks the objects whose status is not what it should be: a leader that takes over finds most as they should be."""
        for kind in sorted({ref.kind for ref in self._nodes}):
            try:
                async for raw in self._objects(kind):
                    head = msgspec.json.decode(raw, type=_Head)
                    ref = ObjectRef(kind, head.metadata.namespace, head.metadata.name)
                    if ref in self._nodes and self._change_of(ref, raw, head) is not None:
                        self._upkeep.look_at((ref,))
            except KubeError as error:
                _log.warning("statuses of %s are not known: %s", kind, error)
                self._upkeep.look_at([ref for ref in self._nodes if ref.kind == kind])

    async def _objects(self, kind: GroupKind) -> AsyncIterator[msgspec.Raw]:
        collection, more = self._path(ObjectRef(kind, "", "x")).removesuffix("/x"), ""
        while collection:
            query = {"limit": str(PAGE_SIZE), **({"continue": more} if more else {})}
            page = msgspec.json.decode(await self._client.call("GET", collection, query), type=_Page)
            for raw in page.items or ():
                yield raw
            more = page.metadata.next
            if not more:
                return

    async def _settle(self, ref: ObjectRef) -> None:
        """Writes the status of one object, where it has another; again at once where somebody was faster."""
        for left in range(TRIES, 0, -1):
            path = self._path(ref)
            if not path or ref not in self._nodes:
                return
            try:
                raw = msgspec.Raw(await self._client.call("GET", path))
                head = msgspec.json.decode(raw, type=_Head)
                changed = self._change_of(ref, raw, head)
                if changed is None:
                    return
                body = {"metadata": {"resourceVersion": head.metadata.resource_version}, "status": changed}
                await self._client.call(
                    "PATCH", f"{path}/status", body=msgspec.json.encode(body), content_type=MERGE_PATCH
                )
            except NotFound:  # it has just gone
                return
            except Conflict:
                if left == 1:
                    raise
            else:
                return

    def _change_of(self, ref: ObjectRef, raw: msgspec.Raw, head: _Head) -> Plain | None:
        """Returns what is to be written into an object's status; None where that is nothing, or the object is not the one that the tables
        have: a commit will bring it."""
        node, row = self._nodes.get(ref), object_with_status(self._db, ref)
        if node is None:
            return None
        self._db.refresh(node)
        wanted: Status | None = None if node.value is UNSET else node.value
        if wanted is None or row is None or not self._is_ours(row) or not self._is_known(row, raw):
            return None
        controllers = (self._db.settings.gateway_api.controller, MESH_CONTROLLER)
        old = head.status or {}
        shown = show_status(wanted, ref.kind, controllers[0])
        if "attachedListenerSets" in old:
            shown.setdefault("attachedListenerSets", 0)
        new = merge_status(old, shown, Moment(head.metadata.generation, _now(), controllers))
        changed = {field: value for field, value in new.items() if (old.get(field) or _EMPTY.get(field)) != value}
        return changed or None

    def _is_known(self, row: Object[Any], raw: msgspec.Raw) -> bool:
        """Returns whether an object of the API server is the row that the status follows from."""
        kind = self._db.catalogue.find(row.kind)
        decoded = decode_object(kind, msgspec.json.decode(raw), self._origin).entries if kind is not None else ()
        return any(entry.object == row for entry in decoded)


_EMPTY: dict[str, Any] = {
    "parents": [],
    "ancestors": [],
    "addresses": [],
    "listeners": [],
    "conditions": [],
    "loadBalancer": {"ingress": []},
}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
