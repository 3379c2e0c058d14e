"""Builds durations as protobuf has them. `NO_TIME` is shared: copy, never change."""

from __future__ import annotations

from google.protobuf import duration_pb2

NO_TIME = duration_pb2.Duration()


def build_duration(nanoseconds: int) -> duration_pb2.Duration:
    """Returns the message of a duration; both parts of a negative one are negative, as protobuf wants."""
    seconds, rest = divmod(abs(nanoseconds), 1_000_000_000)
    return (
        duration_pb2.Duration(seconds=seconds, nanos=rest)
        if nanoseconds >= 0
        else duration_pb2.Duration(seconds=-seconds, nanos=-rest)
    )
