"""Extraction of the type URL from a serialized discovery response.

A response can have megabytes of resources, so it is not decoded just to find its type.
"""

from __future__ import annotations

TYPE_URL = 4
"""The field number of the type URL, in both DiscoveryResponse and DeltaDiscoveryResponse."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_type_url(response: bytes) -> str:
    """Return the type URL of a discovery response, or "" if it has none or is malformed."""
    offset, end = 0, len(response)
    type_url = ""
    try:
        while offset < end:
            key, offset = _varint(response, offset)
            field, wire_type = key >> 3, key & 7
            if wire_type == _BYTES:
                size, offset = _varint(response, offset)
                if field == TYPE_URL:
                    type_url = response[offset : offset + size].decode()
                offset += size
            elif wire_type == _VARINT:
                _, offset = _varint(response, offset)
            elif wire_type in (_FIXED64, _FIXED32):
                offset += 8 if wire_type == _FIXED64 else 4
            else:
                return ""
    except (IndexError, UnicodeDecodeError):
        return ""
    return type_url if offset == end else ""


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return a varint and the offset after it. Raises IndexError if it is truncated or longer than ten bytes."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise IndexError("the varint is longer than ten bytes")
