"""How much one stream may ask for and say of itself."""
from __future__ import annotations

from typing import Any, NamedTuple

from pilot.serve.session import Session
from pilot.settings.process import ServeSettings


class StreamLimits(NamedTuple):
    """`types` and `names`: how many subscriptions a stream may have, and resources that it names over all of them. `node_bytes`: the size of
    its node, with all labels."""

    types: int = 64
    names: int = 50_000
    node_bytes: int = 512 << 10

    def node_excess(self, node: Any) -> str:
        """Returns what is too much about an envoy.config.core.v3.Node, as a sentence for the peer, or ""."""
        size = node.ByteSize()
        return f"the node has {size} bytes, more than {self.node_bytes}" if size > self.node_bytes else ""

    def excess(self, session: Session) -> str:
        """Returns what is too much about the subscriptions of a stream, as a sentence for the peer, or ""."""
        if len(session.subscriptions) > self.types:
            return f"more than {self.types} types on one stream"
        names = sum(len(subscription.wanted.all) + len(subscription.retained) for subscription in session.subscriptions.values())
        return f"{names} resources are named on one stream, more than {self.names}" if names > self.names else ""


DEFAULT_STREAM_LIMITS = StreamLimits()


def stream_limits_of(settings: ServeSettings) -> StreamLimits:
    """Returns the limits that the settings give."""
    return StreamLimits(settings.max_types, settings.max_names, settings.max_node_bytes)
