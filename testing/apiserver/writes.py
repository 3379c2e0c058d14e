"""Writes: create, update, patch and delete, with what an API server adds and refuses."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from testing.apiserver.managed_fields import Manager, apply, updated
from testing.apiserver.patches import PatchFault, json_patch, merge_patch
from testing.apiserver.request_info import Asked
from testing.apiserver.status_error import Refusal, not_found
from testing.apiserver.store import Plain, Store
from testing.apiserver.strategic import strategic_merge

Admit = Callable[[Asked, Plain | None, Plain | None], Awaitable[Plain | None]]
"""Is given the old and the new object; returns the new one as it is to be. Refusal where it may not be."""
APPLY = "application/apply-patch+yaml"
OF_SERVER = ("uid", "creationTimestamp", "generation", "selfLink", "deletionTimestamp")


class Writes:
    """Changes the store. `admission` are asked in order about every change."""

    def __init__(self, store: Store, admission: list[Admit]) -> None:
        self._store, self._admission = store, admission
        self._numbers = itertools.count(1)

    async def create(self, asked: Asked, given: Plain, managed: bool = False) -> Plain:
        """Store a new object; Refusal with 409 where there is one of its name. `managed`: it says already who has set its fields."""
        new = self._identified(asked, given)
        metadata = new["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{next(self._numbers):05}"
        if not metadata.get("name"):
            raise Refusal(
                422,
                f'{asked.resource.kind} "" is invalid: metadata.name: Required value: name or generateName is required',
            )
        for field in ("resourceVersion", *OF_SERVER):
            metadata.pop(field, None)
        if asked.resource.status:
            new.pop("status", None)
        metadata["generation"] = 1
        named = asked._replace(name=metadata["name"])
        new = await self._admitted(named, None, new)
        if self._store.get(asked.resource.id, named.key) is not None:
            message = f'{asked.resource.plural} "{named.name}" already exists'
            raise Refusal(409, message, "AlreadyExists", details={"name": named.name, "kind": asked.resource.plural})
        return self._kept(named, new if managed else self._managed(named, None, new))

    async def update(self, asked: Asked, given: Plain) -> Plain:
        """Replace an object, or its status alone."""
        return await self._change(asked, self._identified(asked, given))

    async def patch(self, asked: Asked, patch: Any, content_type: str) -> Plain:
        """Change an object as a patch says."""
        if content_type == APPLY:
            return await self._apply(asked, patch)
        old = self._current(asked)
        try:
            if content_type == "application/json-patch+json":
                new = json_patch(copy.deepcopy(old), patch)
            elif content_type == "application/merge-patch+json":
                new = merge_patch(copy.deepcopy(old), patch)
            elif content_type == "application/strategic-merge-patch+json" and not asked.resource.schemas:
                new = strategic_merge(copy.deepcopy(old), patch)
            else:
                raise Refusal(415, f"the body of the request was in an unknown format: {content_type}")
        except PatchFault as fault:
            raise Refusal(422, str(fault)) from fault
        return await self._change(asked, new)

    async def _apply(self, asked: Asked, config: Plain) -> Plain:
        """Apply a configuration; an object that is not there is made."""
        name = asked.query.get("fieldManager")
        if not name:
            raise Refusal(
                400, 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            )
        manager, stored = Manager(name, "Apply", asked.subresource), self._store.get(asked.resource.id, asked.key)
        config = self._identified(asked, config)
        config["metadata"].pop("managedFields", None)
        live = copy.deepcopy(stored.plain) if stored is not None else None
        new = apply(live, config, manager, asked.flag("force"), not asked.resource.schemas)
        if live is None:
            return await self.create(asked._replace(verb="create"), new, managed=True)
        return await self._change(asked, new, managed=True)

    async def delete(self, asked: Asked, options: Mapping[str, Any]) -> Plain:
        """Take an object away, or marks it where it has finalizers."""
        old = self._current(asked)
        wanted = options.get("preconditions") or {}
        for field in ("uid", "resourceVersion"):
            if field in wanted and wanted[field] != old["metadata"].get(field):
                raise self._conflict(asked, f"the {field} in the precondition ({wanted[field]}) does not match")
        await self._admitted(asked, old, None)
        if asked.dry_run:
            return old
        if old["metadata"].get("finalizers"):
            marked = copy.deepcopy(old)
            marked["metadata"].setdefault("deletionTimestamp", self._store.timestamp())
            return self._store.put(asked.resource.id, marked).plain
        return self._store.delete(asked.resource.id, asked.key).plain

    async def _change(self, asked: Asked, new: Plain, managed: bool = False) -> Plain:
        """Put a changed object in place of the current one."""
        old = self._current(asked)
        wanted = new["metadata"].get("resourceVersion")
        if wanted and wanted != old["metadata"]["resourceVersion"]:
            raise self._conflict(
                asked, "the object has been modified; please apply your changes to the latest version and try again"
            )
        if asked.subresource == "status":
            new = {**copy.deepcopy(old), "status": new.get("status", {})}
        elif asked.subresource == "approval":
            conditions = {"conditions": new.get("status", {}).get("conditions", [])}
            new = {**copy.deepcopy(old), "status": {**old.get("status", {}), **conditions}}
        elif asked.resource.status:
            new = {k: v for k, v in new.items() if k != "status"} | (
                {"status": old["status"]} if "status" in old else {}
            )
        new["metadata"] |= {field: old["metadata"][field] for field in OF_SERVER if field in old["metadata"]}
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if any(new.get(k) != old.get(k) for k in (new.keys() | old.keys()) - {"metadata", "status"}):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        new = await self._admitted(asked, old, new)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers") and not asked.dry_run:
            return self._store.delete(asked.resource.id, asked.key).plain
        return self._kept(asked, new if managed else self._managed(asked, old, new))

    def _managed(self, asked: Asked, old: Plain | None, new: Plain) -> Plain:
        """Return an object with the writer as the manager of what he has changed."""
        manager = Manager(asked.query.get("fieldManager") or "unknown", "Update", asked.subresource)
        return updated(old, new, manager, not asked.resource.schemas)

    def _kept(self, asked: Asked, new: Plain) -> Plain:
        return new if asked.dry_run else self._store.put(asked.resource.id, new).plain

    def _current(self, asked: Asked) -> Plain:
        stored = self._store.get(asked.resource.id, asked.key)
        if stored is None:
            raise not_found(asked.resource.plural, asked.resource.group, asked.name)
        return stored.plain

    async def _admitted(self, asked: Asked, old: Plain | None, new: Plain | None) -> Plain:
        for admit in self._admission:
            new = await admit(asked, old, new)
        return new or {}

    def _identified(self, asked: Asked, given: Plain) -> Plain:
        """Return a copy of an object that says what it is; Refusal where it says something else than the path."""
        if (
            given.get("kind") != asked.resource.kind
            or str(given.get("apiVersion", "")).rpartition("/")[0] != asked.resource.group
        ):
            raise Refusal(400, f"{given.get('apiVersion')} {given.get('kind')} is not what {asked.resource.plural} are")
        rest = {
            key: copy.deepcopy(value) for key, value in given.items() if key not in ("apiVersion", "kind", "metadata")
        }
        metadata: Plain = copy.deepcopy(given.get("metadata") or {})
        if metadata.get("namespace", asked.namespace) != asked.namespace:
            raise Refusal(400, "the namespace of the provided object does not match the namespace sent on the request")
        if asked.name and metadata.get("name", asked.name) != asked.name:
            raise Refusal(
                400, f"the name of the object ({metadata['name']}) does not match the name on the URL ({asked.name})"
            )
        if asked.resource.namespaced:
            metadata["namespace"] = asked.namespace
        if asked.name:
            metadata["name"] = asked.name
        return {"apiVersion": asked.resource.api_version(), "kind": asked.resource.kind, "metadata": metadata, **rest}

    def _conflict(self, asked: Asked, why: str) -> Refusal:
        return Refusal(
            409,
            f'Operation cannot be fulfilled on {asked.resource.plural} "{asked.name}": {why}',
            details={"name": asked.name},
        )
