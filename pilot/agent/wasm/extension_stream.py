"""Follows the configuration of extensions on one stream to Envoy: it is rewritten, and what cannot be had is tried again."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from envoy.config.core.v3 import extension_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError

Outcome = Literal["as it is", "rewritten", "unmet"]


class Rewriter(Protocol):
    """What is done to one resource."""

    def rewrite(self, packed: Any) -> Outcome: ...


class ExtensionStream:
    """The extensions of one stream. Methods block while modules are fetched, so that they are for a thread.

    What stands in for a module that cannot be had goes to Envoy at once; the resource itself is kept until it is met, or another one of its name
    comes. It then goes out as part of the last response, whose version and nonce Envoy has.
    """

    def __init__(self, rewriter: Rewriter, delta: bool) -> None:
        self._rewriter = rewriter
        self._kind: Any = discovery_pb2.DeltaDiscoveryResponse if delta else discovery_pb2.DiscoveryResponse
        self._last: Any = self._kind()
        self._unmet: dict[str, Any] = {}

    @property
    def waits(self) -> bool:
        """Returns whether there is something to try again."""
        return bool(self._unmet)

    def take(self, raw: bytes) -> bytes:
        """Returns a response as Envoy is to have it; one that cannot be read is returned as it is."""
        response = self._kind()
        try:
            response.ParseFromString(raw)
        except DecodeError:
            return raw
        self._last = _without_resources(response)
        for name in getattr(response, "removed_resources", ()):
            self._unmet.pop(name, None)
        outcomes = [self._rewrite(resource) for resource in response.resources]
        rewritten: bytes = response.SerializeToString() if set(outcomes) - {"as it is"} else raw
        return rewritten

    def again(self) -> bytes:
        """Tries what is not met yet; returns a response with what is met now, b"" without any."""
        response = _without_resources(self._last)
        for resource in list(self._unmet.values()):
            if self._rewrite(resource) != "unmet":
                response.resources.add().CopyFrom(resource)
        met: bytes = response.SerializeToString() if response.resources else b""
        return met

    def _rewrite(self, resource: Any) -> Outcome:
        """Rewrites a resource in place, and keeps it as it was where it is not met."""
        packed, before = getattr(resource, "resource", resource), type(resource)()
        before.CopyFrom(resource)
        name = _name(packed)
        outcome = self._rewriter.rewrite(packed)
        self._unmet.pop(name, None)
        if outcome == "unmet":
            self._unmet[name] = before
        return outcome


def _name(packed: Any) -> str:
    try:
        return str(extension_pb2.TypedExtensionConfig.FromString(packed.value).name)
    except DecodeError:
        return ""


def _without_resources(response: Any) -> Any:
    """Returns what a response says of itself."""
    found = type(response)()
    found.CopyFrom(response)
    del found.resources[:]
    if hasattr(found, "removed_resources"):
        del found.removed_resources[:]
    return found
