"""Limits for the HTTP/2 frames of a client."""

from __future__ import annotations

import random

import pytest

from pilot.xds.tls.frame_limits import MAX_FRAMES, MAX_HEADER_BLOCK, FrameLimits

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_HEADERS = 4


def frame(kind: int, size: int, flags: int = 0) -> bytes:
    """Return an HTTP/2 frame with a payload of this size, whose bytes look like frames."""
    payload = (b"\0\0\0\1" * (size // 4 + 1))[:size]
    return size.to_bytes(3) + bytes((kind, flags)) + (1).to_bytes(4) + payload


def accepted(data: bytes, sizes: int = 16 << 10) -> bool:
    limits = FrameLimits()
    return all(limits.accept(memoryview(data[at : at + sizes])) for at in range(0, len(data), sizes))


def test_frames_are_accepted_however_they_are_divided() -> None:
    blocks = frame(HEADERS, 9000) + frame(CONTINUATION, 16_000, END_HEADERS)
    sent = PREFACE + frame(SETTINGS, 12) + blocks * 20 + frame(DATA, 16_384) * 10 + frame(PING, 8)
    for size in (1, 2, 7, 9, 10, 33, 1000, 16 << 10):
        assert accepted(sent, size)
    rng, limits, at = random.Random(1), FrameLimits(), 0
    while at < len(sent):
        size = rng.randrange(1, 60)
        assert limits.accept(memoryview(sent[at : at + size]))
        at += size


@pytest.mark.parametrize("size", [1, 10, 4000, 16 << 10])
def test_header_block_without_an_end_is_refused(size: int) -> None:
    within = frame(CONTINUATION, 16_000) * 3
    assert accepted(PREFACE + frame(HEADERS, 1000) + within + frame(CONTINUATION, 0, END_HEADERS), size)
    assert not accepted(PREFACE + frame(HEADERS, 1000) + within * (MAX_HEADER_BLOCK // 48_000 + 1), size)


@pytest.mark.parametrize("kind", [DATA, RST_STREAM, SETTINGS, PING, CONTINUATION])
def test_flood_of_small_frames_is_refused(kind: int) -> None:
    small = frame(kind, 4 if kind == RST_STREAM else 8 if kind == PING else 0)
    assert accepted(PREFACE + small * (MAX_FRAMES // 2))
    assert not accepted(PREFACE + small * 2 * MAX_FRAMES)
