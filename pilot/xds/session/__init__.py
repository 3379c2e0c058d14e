"""The state of a stream: its subscriptions, the state that was sent, and the next response. It does no I/O."""
