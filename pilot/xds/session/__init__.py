"""The state of a stream: subscriptions, what was sent, and the next response. It does no I/O."""
