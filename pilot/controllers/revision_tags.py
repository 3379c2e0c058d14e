"""Ownership of objects by revisions of the control plane that share a cluster.

An object's revision follows from its label, the label of its namespace, and revision tags. A tag is a webhook
configuration, or a Service in the control plane's namespace, with the labels `istio.io/tag` and `istio.io/rev`. An
object without a revision belongs to the tag `default`. If there is no such tag, it belongs to the revision of the
default validating webhook.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pilot.kube.api_client import ApiClient
from pilot.kube.informer import Informer, Receive, WatchedCollection, WatchOptions
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.lib.tasks import cancel_tasks

REVISION, TAG = "istio.io/rev", "istio.io/tag"
DEFAULT = "default"
DEFAULT_VALIDATOR = "istiod-default-validator"
_BASE = "/apis/admissionregistration.k8s.io/v1"
Labels = Mapping[str, str]


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class RevisionTags:
    """Watches revision tags. `start` and `stop` it once.

    The `on_change` callbacks run when the revision that owns an object may have changed.
    """

    def __init__(
        self, client: ApiClient, revision: str, namespace: str, options: WatchOptions, rng: random.Random
    ) -> None:
        self.revision = revision or DEFAULT
        self.on_change: list[Callable[[], None]] = []
        self._labels: dict[tuple[str, NamespacedName], Labels] = {}
        collections = (
            ("tags", WatchedCollection(f"{_BASE}/mutatingwebhookconfigurations", TAG, metadata_only=True)),
            ("services", WatchedCollection(f"/api/v1/namespaces/{namespace}/services", TAG, metadata_only=True)),
            (
                "default",
                WatchedCollection(
                    f"{_BASE}/validatingwebhookconfigurations",
                    fields=f"metadata.name={DEFAULT_VALIDATOR}",
                    metadata_only=True,
                ),
            ),
        )
        self._informers = [
            Informer(client, collection, self._receiver(source), options, rng) for source, collection in collections
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start watching."""
        self._tasks = [asyncio.create_task(informer.run(), name="watch revision tags") for informer in self._informers]

    async def stop(self) -> None:
        await cancel_tasks(*self._tasks)

    async def synced(self) -> None:
        """Wait until all tags that existed at startup are known."""
        for informer in self._informers:
            await informer.synced.wait()

    def is_ours(self, labels: Labels, namespace: Labels | None) -> bool:
        """Return whether an object belongs to this revision.

        `namespace` contains the labels of the object's namespace, or is None if they are not known.
        """
        label = labels.get(REVISION)
        if label is None and namespace is None:
            return True
        revision = label if label is not None else (namespace or {}).get(REVISION, "")
        names = self._own_names()
        return revision in names or (not revision and (DEFAULT in names or self._is_default()))

    def _own_names(self) -> frozenset[str]:
        """Return the name of this revision and its tags."""
        tags = (
            labels.get(TAG, "")
            for (source, _), labels in self._labels.items()
            if source != "default" and labels.get(REVISION) == self.revision
        )
        return frozenset((self.revision, *tags)) - {""}

    def _is_default(self) -> bool:
        """Return whether the default validating webhook selects this revision. If the tag `default` exists, it does
        not."""
        has_default_tag = any(
            source == "tags" and labels.get(TAG) == DEFAULT for (source, _), labels in self._labels.items()
        )
        return not has_default_tag and any(
            source == "default" and labels.get(REVISION) == self.revision
            for (source, _), labels in self._labels.items()
        )

    def _receiver(self, source: str) -> Receive:
        async def receive(changes: Sequence[ObjectChange]) -> None:
            before = dict(self._labels)
            for change in changes:
                if change.raw is None:
                    self._labels.pop((source, change.name), None)
                else:
                    metadata = msgspec.json.decode(change.raw, type=_Labelled).metadata
                    self._labels[source, change.name] = metadata.labels or {}
            if self._labels != before:
                for callback in self.on_change:
                    callback()

        return receive
