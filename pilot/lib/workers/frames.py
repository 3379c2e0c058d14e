"""Frames between a process and its workers. A frame has a header and a payload."""

from __future__ import annotations

import struct
from typing import NamedTuple

HEADER = struct.Struct("!cIdQ")
STATE, JOB = b"S", b"J"
"""Kinds of frames to a worker. A job's header contains its limits."""
RESULT, CPU_EXCEEDED, MEMORY_EXCEEDED, CRASHED = b"R", b"C", b"M", b"X"
"""Kinds of frames from a worker. The payload is the result, or for CRASHED the cause."""
LARGEST_RESULT = 32 << 20
"""Maximum size of a result in bytes. A job with a larger result is treated as exceeding its memory limit."""


class JobLimits(NamedTuple):
    """Limits of a job: seconds of CPU time, and bytes of memory that it adds to the worker."""

    cpu: float
    memory: int


class Header(NamedTuple):
    """The header of a frame."""

    kind: bytes
    size: int
    cpu: float
    memory: int


def encode_header(kind: bytes, size: int, limits: JobLimits = JobLimits(0.0, 0)) -> bytes:
    return HEADER.pack(kind, size, *limits)


def decode_header(data: bytes) -> Header:
    return Header._make(HEADER.unpack(data))
