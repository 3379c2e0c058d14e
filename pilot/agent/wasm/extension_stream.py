"""Extension configurations on one ADS stream."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from envoy.config.core.v3 import extension_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError

Outcome = Literal["unchanged", "rewritten", "pending"]
"""The result of rewriting a resource. `pending` means that it was replaced because its module is not available yet."""


class Rewriter(Protocol):
    """Rewrites one resource in place."""

    def rewrite(self, packed: Any) -> Outcome: ...


class ExtensionStream:
    """Rewrites the extension configurations on one stream and retries the pending ones.

    While a module is unavailable, Envoy receives a replacement, and the original resource is retried until its module
    is available or the resource is updated. A successful retry is sent with the version and nonce of the last response,
    which Envoy knows.

    Methods block while modules are fetched, so call them in a thread.
    """

    def __init__(self, rewriter: Rewriter, delta: bool) -> None:
        self._rewriter = rewriter
        self._message: Any = discovery_pb2.DeltaDiscoveryResponse if delta else discovery_pb2.DiscoveryResponse
        self._last_response: Any = self._message()
        self._pending: dict[str, Any] = {}

    @property
    def has_pending(self) -> bool:
        """Return whether there are resources to retry."""
        return bool(self._pending)

    def rewrite(self, raw: bytes) -> bytes:
        """Return the response to send to Envoy. A malformed response is returned unchanged."""
        response = self._message()
        try:
            response.ParseFromString(raw)
        except DecodeError:
            return raw
        self._last_response = _without_resources(response)
        for name in getattr(response, "removed_resources", ()):
            self._pending.pop(name, None)
        outcomes = [self._rewrite(resource) for resource in response.resources]
        rewritten: bytes = response.SerializeToString() if set(outcomes) - {"unchanged"} else raw
        return rewritten

    def retry_pending(self) -> bytes:
        """Retry the pending resources. Returns a response with those that succeeded, or b"" if none did."""
        response = _without_resources(self._last_response)
        for resource in list(self._pending.values()):
            if self._rewrite(resource) != "pending":
                response.resources.add().CopyFrom(resource)
        serialized: bytes = response.SerializeToString() if response.resources else b""
        return serialized

    def _rewrite(self, resource: Any) -> Outcome:
        """Rewrite a resource in place. If it is pending, keep a copy of the original."""
        packed, original = getattr(resource, "resource", resource), type(resource)()
        original.CopyFrom(resource)
        name = _name(packed)
        outcome = self._rewriter.rewrite(packed)
        self._pending.pop(name, None)
        if outcome == "pending":
            self._pending[name] = original
        return outcome


def _name(packed: Any) -> str:
    try:
        return str(extension_pb2.TypedExtensionConfig.FromString(packed.value).name)
    except DecodeError:
        return ""


def _without_resources(response: Any) -> Any:
    """Return a copy of a response without its resources."""
    copy = type(response)()
    copy.CopyFrom(response)
    del copy.resources[:]
    if hasattr(copy, "removed_resources"):
        del copy.removed_resources[:]
    return copy
