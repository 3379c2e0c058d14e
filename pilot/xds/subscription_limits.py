"""What one stream asks for and says of itself is limited."""

from __future__ import annotations

from typing import Any, NamedTuple

from pilot.settings.process import ServeSettings
from pilot.xds.session import Session


class StreamLimits(NamedTuple):
    """The limits of one stream. `types` is the number of subscriptions that it may have, `names` that of the resources that it names over all
    of them, `node_bytes` the size of its node, with all labels."""

    types: int = 64
    names: int = 50_000
    node_bytes: int = 512 << 10

    def node_excess(self, node: Any) -> str:
        """Returns a sentence for the peer that says what is too much about an envoy.config.core.v3.Node, "" if nothing is."""
        size = node.ByteSize()
        return f"the node has {size} bytes, more than {self.node_bytes}" if size > self.node_bytes else ""

    def excess(self, session: Session) -> str:
        """Returns a sentence for the peer that says what is too much about the subscriptions of a stream, "" if nothing is."""
        if len(session.subscriptions) > self.types:
            return f"more than {self.types} types on one stream"
        names = sum(
            len(subscription.wanted.all) + len(subscription.retained) for subscription in session.subscriptions.values()
        )
        return f"{names} resources are named on one stream, more than {self.names}" if names > self.names else ""


DEFAULT_STREAM_LIMITS = StreamLimits()


def stream_limits_of(settings: ServeSettings) -> StreamLimits:
    """Returns the limits that the settings give."""
    return StreamLimits(settings.max_types, settings.max_names, settings.max_node_bytes)
