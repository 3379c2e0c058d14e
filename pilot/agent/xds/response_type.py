"""The type of a discovery response, read off its bytes: responses are megabytes of resources that nobody here has to decode."""

from __future__ import annotations

TYPE_URL = 4
"""The field's number, in DiscoveryResponse and in DeltaDiscoveryResponse."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_type_url(response: bytes) -> str:
    """Returns the type URL of a discovery response; "" where it has none, or is no message."""
    at, end = 0, len(response)
    found = ""
    try:
        while at < end:
            key, at = _varint(response, at)
            field, wire = key >> 3, key & 7
            if wire == _BYTES:
                size, at = _varint(response, at)
                if field == TYPE_URL:
                    found = response[at : at + size].decode()
                at += size
            elif wire == _VARINT:
                _, at = _varint(response, at)
            elif wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
            else:
                return ""
    except (IndexError, UnicodeDecodeError):
        return ""
    return found if at == end else ""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number and where the next thing begins. IndexError where the data ends in it or it is longer than ten bytes."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError("a number is longer than ten bytes")
