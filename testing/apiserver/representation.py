"""The forms that objects are given out in: as they are, in any served version, or as their metadata alone."""

from __future__ import annotations

from collections.abc import Iterable

from testing.apiserver.resource import Resource
from testing.apiserver.status_error import Refusal
from testing.apiserver.store import Plain, Stored, encode

META = "meta.k8s.io/v1"


class Form:
    """How one request wants its objects. `accept` is the header of that name, `what` is "List" for the form of a list."""

    def __init__(self, resource: Resource, version: str, accept: str, what: str = "") -> None:
        self._metadata_alone = f"as=PartialObjectMetadata{what};" in accept
        if not self._metadata_alone and "as=PartialObjectMetadata" in accept:
            raise Refusal(406, "only the following media types are accepted: application/json")
        self._own = resource.group == "" or "." not in resource.group or resource.group.endswith(".k8s.io")
        self.api_version = META if self._metadata_alone else resource.api_version(version)
        self.kind = "PartialObjectMetadata" if self._metadata_alone else resource.kind
        self._head = encode({"apiVersion": self.api_version, "kind": self.kind})[:-1] + b","

    def object(self, stored: Stored) -> bytes:
        """Return the JSON of an object."""
        return self._head + self._rest(stored)

    def item(self, stored: Stored) -> bytes:
        """Return the JSON of an object in a list, where objects of built-in kinds do not say what they are."""
        return (b"{" if self._own else self._head) + self._rest(stored)

    def _rest(self, stored: Stored) -> bytes:
        return encode({"metadata": stored.plain["metadata"]})[1:] if self._metadata_alone else stored.rest

    def list(self, items: Iterable[Stored], metadata: Plain) -> bytes:
        """Return the JSON of a list."""
        head = encode({"kind": f"{self.kind}List", "apiVersion": self.api_version, "metadata": metadata})[:-1]
        return head + b',"items":[' + b",".join(map(self.item, items)) + b"]}"

    def event(self, kind: str, stored: Stored) -> bytes:
        """Return the line of a watch that tells of an object."""
        return b'{"type":"' + kind.encode() + b'","object":' + self.object(stored) + b"}\n"

    def bookmark(self, revision: int, end_of_first: bool = False) -> bytes:
        """Return the line of a watch that tells up to which revision everything has been told."""
        annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if end_of_first else {}
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
