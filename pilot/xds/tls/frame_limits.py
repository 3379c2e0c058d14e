"""Limits for the HTTP/2 frames that a client of the TLS port sends.

gRPC keeps all headers of a block until the block ends, in 20 times as many bytes. Small frames cost it more than their
size suggests.
"""

from __future__ import annotations

MAX_HEADER_BLOCK = 64 << 10
"""Maximum size of the headers of a stream, in bytes. gRPC itself refuses more than 16 KiB, but reads on."""
MAX_FRAMES = 512
"""Maximum number of frames in a read, which returns at most 16 KiB. Requests and acknowledgements have more than a
hundred bytes."""
_PREFACE_LENGTH, _HEAD_LENGTH = 24, 9
_HEADERS, _CONTINUATION, _END_HEADERS = 1, 9, 4


class FrameLimits:
    """Follows the frames of one connection."""

    def __init__(self) -> None:
        self._skip = _PREFACE_LENGTH  # bytes until the next frame
        self._head = b""  # the beginning of a frame's head
        self._block = 0

    def accept(self, data: memoryview) -> bool:
        """Follow the next bytes. Return False if they exceed a limit."""
        if self._head:
            data, self._head = memoryview(self._head + bytes(data)), b""
        at, end, frames = self._skip, len(data), 0
        while at + _HEAD_LENGTH <= end:
            frames += 1
            length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if data[at + 3] in (_HEADERS, _CONTINUATION):
                self._block += length
                if self._block > MAX_HEADER_BLOCK:
                    return False
                if data[at + 4] & _END_HEADERS:
                    self._block = 0
            at += _HEAD_LENGTH + length
        self._skip = max(0, at - end)
        self._head = bytes(data[at:])
        return frames <= MAX_FRAMES
