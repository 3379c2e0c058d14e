"""Writes the derived statuses of Gateway API objects, Ingresses and objects in an ambient mesh.

A status is written only if it differs. The write contains the object's resource version, so that concurrent writes are
not lost. A status update does not change the specification, so it does not cause another update.
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
from pilot.controllers.reconciler import Reconciler
from pilot.controllers.status_merge import Plain, StatusContext, merge_status
from pilot.derive import UNSET, Node
from pilot.ingest.decode import DocumentOrigin, decode_object
from pilot.ingest.namespace_filter import Edit
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import Conflict, KubeError, NotFound
from pilot.kube.deep_json import decode_any_depth
from pilot.kube.pages import read_pages
from pilot.lib.backoff import Backoff
from pilot.lib.logging.log import scope
from pilot.lib.long_tuples import changed_items
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.status.object_status import Status, object_status, object_with_status, objects_with_status
from pilot.mesh.status.plain_status import MESH_CONTROLLER, plain_status
from pilot.mesh.tables.database import Mesh

MERGE_PATCH = "application/merge-patch+json"
MAX_ATTEMPTS = 5
_log = scope("status")


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    generation: int = 0
    resource_version: str = ""


class _Head(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: Plain | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
IsOurs = Callable[[Object[Any]], bool]


class StatusController:
    """Writes the statuses of objects of several kinds.

    `path_of` returns the API path of an object, or "" if its kind is not available. `is_ours` returns whether an object
    belongs to this revision.
    """

    def __init__(
        self,
        client: ApiClient,
        db: Mesh,
        kinds: Iterable[GroupKind],
        path_of: Callable[[ObjectRef], str],
        is_ours: IsOurs,
        origin: DocumentOrigin,
        backoff: Backoff,
        rng: random.Random,
    ) -> None:
        self._client, self._db, self._kinds = client, db, frozenset(kinds)
        self._path_of, self._is_ours, self._origin = path_of, is_ours, origin
        self._reconciler: Reconciler[ObjectRef] = Reconciler("status of", self._reconcile, backoff, rng)
        self._list_node: Node | None = None
        self._listed: tuple[ObjectRef, ...] = ()
        self._nodes: dict[ObjectRef, Node] = {}
        self._refs: dict[Node, ObjectRef] = {}

    # -- changes -------------------------------------------------------------------------------------------------------

    def on_commit(self, nodes: Iterable[Node], edits: Iterable[Edit]) -> None:
        """Enqueue the objects whose status may have changed. Edited objects are included, because their generation
        changed."""
        if self._list_node is None:
            return
        refs = {row.ref for _, _, row in edits if isinstance(row, Object) and row.kind in self._kinds}
        for node in nodes:
            if node is self._list_node:
                refs |= self._update_refs()
            elif node in self._refs:
                refs.add(self._refs[node])
        self._reconciler.enqueue(sorted(refs & self._nodes.keys()))

    def resync(self) -> None:
        """Enqueue all objects."""
        self._reconciler.enqueue(list(self._nodes))

    def _update_refs(self) -> set[ObjectRef]:
        """Watch the objects that are currently in the list, and return the new ones."""
        assert self._list_node is not None
        self._db.refresh(self._list_node)
        all_refs = () if self._list_node.value is UNSET else self._list_node.value
        gone, added = changed_items(self._listed, all_refs)
        self._listed = all_refs
        for ref in self._nodes.keys() & gone:
            node = self._nodes.pop(ref)
            del self._refs[node]
            self._db.unwatch(node)
        new = {ref for ref in added if ref.kind in self._kinds}
        for ref in sorted(new):
            node = self._nodes[ref] = self._db.watch(object_status, ref)
            self._refs[node] = ref
        return new

    # -- writes --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write statuses until cancelled."""
        writing = asyncio.create_task(self._reconciler.run(), name="write object statuses")
        self._list_node = self._db.watch(objects_with_status)
        try:
            self._update_refs()
            await self._enqueue_differing()
            await asyncio.Event().wait()
        finally:
            list_node, self._list_node = self._list_node, None
            for node in (list_node, *self._refs):
                self._db.unwatch(node)
            self._listed, self._nodes, self._refs = (), {}, {}
            await cancel_tasks(writing)

    async def _enqueue_differing(self) -> None:
        """Enqueue the objects whose status differs. Most statuses are up to date when a new leader takes over."""
        for kind in sorted({ref.kind for ref in self._nodes}):
            try:
                async for raw in self._objects(kind):
                    head = await decode_any_depth(_decode_head, raw)
                    ref = ObjectRef(kind, head.metadata.namespace, head.metadata.name)
                    if ref in self._nodes and self._patch_for(ref, raw, head) is not None:
                        self._reconciler.enqueue((ref,))
            except (KubeError, msgspec.MsgspecError) as error:
                _log.warning("cannot list the statuses of %s: %s", kind, error)
                self._reconciler.enqueue([ref for ref in self._nodes if ref.kind == kind])

    async def _objects(self, kind: GroupKind) -> AsyncIterator[msgspec.Raw]:
        collection = self._path_of(ObjectRef(kind, "", "x")).removesuffix("/x")
        if not collection:
            return

        async def fetch(query: dict[str, str], largest: int) -> bytes:
            return await self._client.call("GET", collection, query, largest=largest)

        async for page in read_pages(fetch):
            for raw in page.items or ():
                yield raw

    async def _reconcile(self, ref: ObjectRef) -> None:
        """Write the status of one object if it differs. Retry immediately after a conflict."""
        for remaining in range(MAX_ATTEMPTS, 0, -1):
            path = self._path_of(ref)
            if not path or ref not in self._nodes:
                return
            try:
                body = await self._client.call("GET", path)
                raw, head = msgspec.Raw(body), await decode_any_depth(_decode_head, body)
                patch = self._patch_for(ref, raw, head)
                if patch is None:
                    return
                change = {"metadata": {"resourceVersion": head.metadata.resource_version}, "status": patch}
                await self._client.call(
                    "PATCH", f"{path}/status", body=msgspec.json.encode(change), content_type=MERGE_PATCH
                )
            except NotFound:  # deleted meanwhile
                return
            except Conflict:
                if remaining == 1:
                    raise
            else:
                return

    def _patch_for(self, ref: ObjectRef, raw: msgspec.Raw, head: _Head) -> Plain | None:
        """Return the changes to an object's status, or None if there are none.

        Return None also if the object is not the version in the tables. The commit of that version will enqueue it
        again.
        """
        node, row = self._nodes.get(ref), object_with_status(self._db, ref)
        if node is None:
            return None
        self._db.refresh(node)
        status: Status | None = None if node.value is UNSET else node.value
        if status is None or row is None or not self._is_ours(row) or not self._is_current(row, raw):
            return None
        controllers = (self._db.settings.gateway_api.controller, MESH_CONTROLLER)
        existing = head.status or {}
        desired = plain_status(status, ref.kind, controllers[0])
        if "attachedListenerSets" in existing:
            desired.setdefault("attachedListenerSets", 0)
        new = merge_status(existing, desired, StatusContext(head.metadata.generation, _now(), controllers))
        patch = {field: value for field, value in new.items() if (existing.get(field) or _EMPTY.get(field)) != value}
        return patch or None

    def _is_current(self, row: Object[Any], raw: msgspec.Raw) -> bool:
        """Return whether an object from the API server equals the row from which the status was derived."""
        kind = self._db.catalogue.find(row.kind)
        try:
            decoded = decode_object(kind, msgspec.json.decode(raw), self._origin).entries if kind is not None else ()
        except RecursionError:  # such an object is never in the tables
            return False
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
