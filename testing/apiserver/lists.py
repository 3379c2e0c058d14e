"""Lists, whole and in pages. The pages of a list are all of one revision."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Mapping
from typing import Any

from testing.apiserver.representation import Form
from testing.apiserver.request_info import Asked
from testing.apiserver.selectors import selector
from testing.apiserver.status_error import Refusal, expired
from testing.apiserver.store import Store, Stored


class Lists:
    """Answers lists, and keeps what is left of those that are read in pages."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left: dict[int, tuple[int, list[Stored]]] = {}
        self._numbers = itertools.count(1)

    def answer(self, asked: Asked, accept: str) -> bytes:
        """Return the JSON of a list, or of its next page. Refusal with 410 where its pages are no more to be had."""
        form = Form(asked.resource, asked.version, accept, "List")
        limit = int(asked.query.get("limit") or 0)
        revision, items = self._go_on(asked) if asked.query.get("continue") else self._begin(asked)
        if not limit or len(items) <= limit:
            return form.list(items, {"resourceVersion": str(revision)})
        number = next(self._numbers)
        self._left[number] = revision, items[limit:]
        token = base64.urlsafe_b64encode(
            json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": number}).encode()
        ).decode()
        metadata: Mapping[str, Any] = {
            "resourceVersion": str(revision),
            "continue": token,
            "remainingItemCount": len(items) - limit,
        }
        return form.list(items[:limit], dict(metadata))

    def _begin(self, asked: Asked) -> tuple[int, list[Stored]]:
        selects = selector(asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", ""))
        found = sorted(self._store.collection(asked.resource.id).objects.items())
        items = [s for (ns, _), s in found if asked.namespace in ("", ns) and (selects is None or selects(s.plain))]
        return self._store.revision, items

    def _go_on(self, asked: Asked) -> tuple[int, list[Stored]]:
        try:
            token = json.loads(base64.urlsafe_b64decode(asked.query["continue"]))
            revision, items = self._left[token["start"]]
        except (ValueError, KeyError) as fault:
            raise Refusal(400, "continue key is not valid") from fault
        compacted = self._store.collection(asked.resource.id).compacted
        if revision < compacted:
            raise expired(revision, compacted)
        return revision, items
