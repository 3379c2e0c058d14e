"""Writes: create, update, patch and delete, with the fields that an API server sets and the requests that it rejects."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from testing.apiserver.managed_fields import Manager, apply, updated
from testing.apiserver.patches import PatchError, json_patch, merge_patch
from testing.apiserver.request_info import RequestInfo
from testing.apiserver.status_error import StatusError, not_found
from testing.apiserver.store import Plain, Store
from testing.apiserver.strategic import strategic_merge

AdmissionStep = Callable[[RequestInfo, Plain | None, Plain | None], Awaitable[Plain | None]]
"""Takes the old and the new object, and returns the admitted one. Raises StatusError to deny the change."""
APPLY = "application/apply-patch+yaml"
SERVER_FIELDS = ("uid", "creationTimestamp", "generation", "selfLink", "deletionTimestamp")


class Writes:
    """Changes the store. The steps of `admission` run in order for every change."""

    def __init__(self, store: Store, admission: list[AdmissionStep]) -> None:
        self._store, self._admission = store, admission
        self._numbers = itertools.count(1)

    async def create(self, info: RequestInfo, body: Plain, managed: bool = False) -> Plain:
        """Store a new object.

        Raise StatusError with 409 if it exists. `managed`: its managed fields are already set.
        """
        new = self._with_identity(info, body)
        metadata = new["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{next(self._numbers):05}"
        if not metadata.get("name"):
            raise StatusError(
                422,
                f'{info.resource.kind} "" is invalid: metadata.name: Required value: name or generateName is required',
            )
        for field in ("resourceVersion", *SERVER_FIELDS):
            metadata.pop(field, None)
        if info.resource.status:
            new.pop("status", None)
        metadata["generation"] = 1
        identity = info._replace(name=metadata["name"])
        new = await self._admit(identity, None, new)
        if self._store.get(info.resource.id, identity.key) is not None:
            message = f'{info.resource.plural} "{identity.name}" already exists'
            raise StatusError(
                409, message, "AlreadyExists", details={"name": identity.name, "kind": info.resource.plural}
            )
        return self._store_unless_dry_run(identity, new if managed else self._with_manager(identity, None, new))

    async def update(self, info: RequestInfo, body: Plain) -> Plain:
        """Replace an object, or only its status."""
        return await self._change(info, self._with_identity(info, body))

    async def patch(self, info: RequestInfo, patch: Any, content_type: str) -> Plain:
        """Change an object by a patch."""
        if content_type == APPLY:
            return await self._apply(info, patch)
        old = self._current(info)
        try:
            if content_type == "application/json-patch+json":
                new = json_patch(copy.deepcopy(old), patch)
            elif content_type == "application/merge-patch+json":
                new = merge_patch(copy.deepcopy(old), patch)
            elif content_type == "application/strategic-merge-patch+json" and not info.resource.schemas:
                new = strategic_merge(copy.deepcopy(old), patch)
            else:
                raise StatusError(415, f"the body of the request was in an unknown format: {content_type}")
        except PatchError as error:
            raise StatusError(422, str(error)) from error
        return await self._change(info, new)

    async def _apply(self, info: RequestInfo, config: Plain) -> Plain:
        """Apply a configuration. The object is created if it does not exist."""
        name = info.query.get("fieldManager")
        if not name:
            raise StatusError(
                400, 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            )
        manager, stored = Manager(name, "Apply", info.subresource), self._store.get(info.resource.id, info.key)
        config = self._with_identity(info, config)
        config["metadata"].pop("managedFields", None)
        live = copy.deepcopy(stored.plain) if stored is not None else None
        new = apply(live, config, manager, info.flag("force"), not info.resource.schemas)
        if live is None:
            return await self.create(info._replace(verb="create"), new, managed=True)
        return await self._change(info, new, managed=True)

    async def delete(self, info: RequestInfo, options: Mapping[str, Any]) -> Plain:
        """Delete an object, or mark it for deletion if it has finalizers."""
        old = self._current(info)
        preconditions = options.get("preconditions") or {}
        for field in ("uid", "resourceVersion"):
            if field in preconditions and preconditions[field] != old["metadata"].get(field):
                raise self._conflict(info, f"the {field} in the precondition ({preconditions[field]}) does not match")
        await self._admit(info, old, None)
        if info.dry_run:
            return old
        if old["metadata"].get("finalizers"):
            terminating = copy.deepcopy(old)
            terminating["metadata"].setdefault("deletionTimestamp", self._store.timestamp())
            return self._store.put(info.resource.id, terminating).plain
        return self._store.delete(info.resource.id, info.key).plain

    async def _change(self, info: RequestInfo, new: Plain, managed: bool = False) -> Plain:
        """Replace the current object by a changed one."""
        old = self._current(info)
        expected_version = new["metadata"].get("resourceVersion")
        if expected_version and expected_version != old["metadata"]["resourceVersion"]:
            raise self._conflict(
                info, "the object has been modified; please apply your changes to the latest version and try again"
            )
        if info.subresource == "status":
            new = {**copy.deepcopy(old), "status": new.get("status", {})}
        elif info.subresource == "approval":
            conditions = {"conditions": new.get("status", {}).get("conditions", [])}
            new = {**copy.deepcopy(old), "status": {**old.get("status", {}), **conditions}}
        elif info.resource.status:
            new = {k: v for k, v in new.items() if k != "status"} | (
                {"status": old["status"]} if "status" in old else {}
            )
        new["metadata"] |= {field: old["metadata"][field] for field in SERVER_FIELDS if field in old["metadata"]}
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if any(new.get(k) != old.get(k) for k in (new.keys() | old.keys()) - {"metadata", "status"}):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        new = await self._admit(info, old, new)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers") and not info.dry_run:
            return self._store.delete(info.resource.id, info.key).plain
        return self._store_unless_dry_run(info, new if managed else self._with_manager(info, old, new))

    def _with_manager(self, info: RequestInfo, old: Plain | None, new: Plain) -> Plain:
        """Return the object with the writer as the manager of the changed fields."""
        manager = Manager(info.query.get("fieldManager") or "unknown", "Update", info.subresource)
        return updated(old, new, manager, not info.resource.schemas)

    def _store_unless_dry_run(self, info: RequestInfo, new: Plain) -> Plain:
        return new if info.dry_run else self._store.put(info.resource.id, new).plain

    def _current(self, info: RequestInfo) -> Plain:
        stored = self._store.get(info.resource.id, info.key)
        if stored is None:
            raise not_found(info.resource.plural, info.resource.group, info.name)
        return stored.plain

    async def _admit(self, info: RequestInfo, old: Plain | None, new: Plain | None) -> Plain:
        for admit in self._admission:
            new = await admit(info, old, new)
        return new or {}

    def _with_identity(self, info: RequestInfo, body: Plain) -> Plain:
        """Return a copy of the object with its kind, namespace and name.

        Raise StatusError if they contradict the path.
        """
        if (
            body.get("kind") != info.resource.kind
            or str(body.get("apiVersion", "")).rpartition("/")[0] != info.resource.group
        ):
            raise StatusError(
                400, f"{body.get('apiVersion')} {body.get('kind')} is not the kind of {info.resource.plural}"
            )
        rest = {
            key: copy.deepcopy(value) for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")
        }
        metadata: Plain = copy.deepcopy(body.get("metadata") or {})
        if metadata.get("namespace", info.namespace) != info.namespace:
            raise StatusError(
                400, "the namespace of the provided object does not match the namespace sent on the request"
            )
        if info.name and metadata.get("name", info.name) != info.name:
            raise StatusError(
                400, f"the name of the object ({metadata['name']}) does not match the name on the URL ({info.name})"
            )
        if info.resource.namespaced:
            metadata["namespace"] = info.namespace
        if info.name:
            metadata["name"] = info.name
        return {"apiVersion": info.resource.api_version(), "kind": info.resource.kind, "metadata": metadata, **rest}

    def _conflict(self, info: RequestInfo, reason: str) -> StatusError:
        return StatusError(
            409,
            f'Operation cannot be fulfilled on {info.resource.plural} "{info.name}": {reason}',
            details={"name": info.name},
        )
