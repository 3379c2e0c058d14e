"""SPDY/3.1 as far as port-forwarding uses it: streams, data frames and pings."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_WORDS = """options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow authorization
cache-control connection content-base content-encoding content-language content-length content-location content-md5 content-range content-type
date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards
pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning
www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin"""
_CODES = (
    "100 101 201 202 205 206 300 302 303 304 305 306 307 402 405 406 407 408 409 410 411 412 413 414 415 416 417 502 504 505"
    "|203 Non-Authoritative Information|204 No Content|301 Moved Permanently|400 Bad Request|401 Unauthorized|403 Forbidden|404 Not Found"
    "|500 Internal Server Error|501 Not Implemented|503 Service Unavailable"
)
_REST = (
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,"
    "image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8"
    "charset=iso-8859-1,utf-,*,enq=0."
)
_VERSION = 0x8003
_SYN_REPLY = 2
_FIN = 1


def _dictionary() -> bytes:
    """Return the initial compression dictionary for headers that the protocol defines."""
    words = [word.replace("_", " ").encode() for word in _WORDS.split()]
    codes, *status_lines = _CODES.split("|")
    return (
        b"".join(struct.pack(">I", len(word)) + word for word in words)
        + (codes.replace(" ", "") + "".join(status_lines) + _REST).encode()
    )


class StreamOpened(NamedTuple):
    """The peer opened a stream."""

    stream: int
    headers: Mapping[str, str]


class Data(NamedTuple):
    """Bytes of a stream. `ended` is set with the last ones."""

    stream: int
    data: bytes
    ended: bool


class Reset(NamedTuple):
    """The peer reset a stream."""

    stream: int


class Ping(NamedTuple):
    """A ping frame, to be echoed."""

    frame: bytes


SpdyEvent = StreamOpened | Data | Reset | Ping


class SpdyConnection:
    """The protocol state of a connection, without I/O: bytes in, events out, and frames to send."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=_dictionary())
        self._deflate = zlib.compressobj(zdict=_dictionary())

    def receive(self, data: bytes) -> Iterator[SpdyEvent]:
        """Yield the events of the complete frames received so far."""
        self._buffer += data
        while len(self._buffer) >= 8:
            length = int.from_bytes(self._buffer[5:8], "big")
            if len(self._buffer) < 8 + length:
                return
            frame = bytes(self._buffer[: 8 + length])
            del self._buffer[: 8 + length]
            if (event := self._read(frame)) is not None:
                yield event

    def reply(self, stream: int) -> bytes:
        """Return the frame that accepts a stream."""
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control(_SYN_REPLY, struct.pack(">I", stream) + block)

    def data(self, stream: int, data: bytes, ended: bool = False) -> bytes:
        """Return a frame with data of a stream."""
        return struct.pack(">IB", stream, _FIN if ended else 0) + len(data).to_bytes(3, "big") + data

    def _read(self, frame: bytes) -> SpdyEvent | None:
        first, flags = struct.unpack_from(">IB", frame)
        body = frame[8:]
        if not first & 0x80000000:
            return Data(first, body, bool(flags & _FIN))
        match first & 0xFFFF:
            case 1:  # SYN_STREAM
                return StreamOpened(int.from_bytes(body[:4], "big"), self._headers(body[10:]))
            case 3:  # RST_STREAM
                return Reset(int.from_bytes(body[:4], "big"))
            case 6:  # PING
                return Ping(frame)
        return None  # SETTINGS, WINDOW_UPDATE and GOAWAY need no answer

    def _headers(self, block: bytes) -> dict[str, str]:
        text, offset, fields = self._inflate.decompress(block), 4, []
        while offset < len(text):
            length = int.from_bytes(text[offset : offset + 4], "big")
            fields.append(text[offset + 4 : offset + 4 + length].decode())
            offset += 4 + length
        return dict(zip(fields[::2], fields[1::2], strict=True))


def _control(kind: int, body: bytes) -> bytes:
    return struct.pack(">HHB", _VERSION, kind, 0) + len(body).to_bytes(3, "big") + body
