"""Lists, whole and in pages. All pages of a list have the same revision.

Like kube-apiserver 1.35, a cluster-wide list with a field selector for one namespace has no second page with objects.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

from testing.apiserver.representation import Representation
from testing.apiserver.request_info import RequestInfo
from testing.apiserver.selectors import Predicate, selector
from testing.apiserver.status_error import StatusError, expired
from testing.apiserver.store import Store, StoredObject

_ONE_NAMESPACE = re.compile(r"metadata\.namespace==?")


class Lists:
    """Answers list requests, and keeps the remaining items of lists that are read in pages."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._remaining: dict[int, tuple[int, list[StoredObject]]] = {}
        self._numbers = itertools.count(1)

    def answer(self, info: RequestInfo, accept: str) -> bytes:
        """Return the JSON of a list or of its next page. Raise StatusError with 410 if the page has expired."""
        representation = Representation(info.resource, info.version, accept, "List")
        limit = int(info.query.get("limit") or 0)
        revision, items = self._continue(info) if info.query.get("continue") else self._begin(info)
        if not limit or len(items) <= limit:
            return representation.list(items, {"resourceVersion": str(revision)})
        number = next(self._numbers)
        self._remaining[number] = revision, items[limit:]
        token = base64.urlsafe_b64encode(
            json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": number}).encode()
        ).decode()
        metadata: Mapping[str, Any] = {
            "resourceVersion": str(revision),
            "continue": token,
            "remainingItemCount": len(items) - limit,
        }
        return representation.list(items[:limit], dict(metadata))

    def _begin(self, info: RequestInfo) -> tuple[int, list[StoredObject]]:
        selects = _selector_of(info)
        objects = self._store.collection(info.resource.id).in_order()
        if info.namespace:
            objects = [stored for stored in objects if stored.plain["metadata"].get("namespace") == info.namespace]
        return self._store.revision, [stored for stored in objects if selects is None or selects(stored.plain)]

    def _continue(self, info: RequestInfo) -> tuple[int, list[StoredObject]]:
        try:
            token = json.loads(base64.urlsafe_b64decode(info.query["continue"]))
            revision, items = self._remaining[token["start"]]
        except (ValueError, KeyError) as error:
            raise StatusError(400, "continue key is not valid") from error
        compacted = self._store.collection(info.resource.id).compacted
        if revision < compacted:
            raise expired(revision, compacted)
        if not info.namespace and _ONE_NAMESPACE.search(info.query.get("fieldSelector", "")):
            return revision, []
        selects = _selector_of(info)
        return revision, [s for s in items if selects is None or selects(s.plain)]


def _selector_of(info: RequestInfo) -> Predicate | None:
    return selector(info.query.get("labelSelector", ""), info.query.get("fieldSelector", ""))
