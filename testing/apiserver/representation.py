"""Representations of objects: full in any served version, or metadata only."""

from __future__ import annotations

from collections.abc import Iterable

from testing.apiserver.resource import Resource
from testing.apiserver.status_error import StatusError
from testing.apiserver.store import Plain, StoredObject, encode

META = "meta.k8s.io/v1"


class Representation:
    """The representation that one request asks for.

    `accept` is its Accept header; `suffix` is "List" for a list.
    """

    def __init__(self, resource: Resource, version: str, accept: str, suffix: str = "") -> None:
        self._metadata_only = f"as=PartialObjectMetadata{suffix};" in accept
        if not self._metadata_only and "as=PartialObjectMetadata" in accept:
            raise StatusError(406, "only the following media types are accepted: application/json")
        self._is_built_in = resource.group == "" or "." not in resource.group or resource.group.endswith(".k8s.io")
        self.api_version = META if self._metadata_only else resource.api_version(version)
        self.kind = "PartialObjectMetadata" if self._metadata_only else resource.kind
        self._head = encode({"apiVersion": self.api_version, "kind": self.kind})[:-1] + b","

    def object(self, stored: StoredObject) -> bytes:
        """Return the JSON of an object."""
        return self._head + self._rest(stored)

    def item(self, stored: StoredObject) -> bytes:
        """Return the JSON of an object in a list, where built-in kinds omit apiVersion and kind."""
        return (b"{" if self._is_built_in else self._head) + self._rest(stored)

    def _rest(self, stored: StoredObject) -> bytes:
        return encode({"metadata": stored.plain["metadata"]})[1:] if self._metadata_only else stored.rest

    def list(self, items: Iterable[StoredObject], metadata: Plain) -> bytes:
        """Return the JSON of a list."""
        head = encode({"kind": f"{self.kind}List", "apiVersion": self.api_version, "metadata": metadata})[:-1]
        return head + b',"items":[' + b",".join(map(self.item, items)) + b"]}"

    def event(self, kind: str, stored: StoredObject) -> bytes:
        """Return the line of a watch event."""
        return b'{"type":"' + kind.encode() + b'","object":' + self.object(stored) + b"}\n"

    def bookmark(self, revision: int, ends_initial_events: bool = False) -> bytes:
        """Return the line of a bookmark: everything up to this revision has been sent."""
        annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends_initial_events else {}
        metadata = {"resourceVersion": str(revision), "creationTimestamp": None, **annotations}
        return (
            encode(
                {
                    "type": "BOOKMARK",
                    "object": {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata},
                }
            )
            + b"\n"
        )
