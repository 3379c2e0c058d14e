"""Fingerprints of objects, which identify versions of objects that have no generation."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from pilot.config.object import Object
from pilot.ingest.shape import encode_extension


def fingerprint(o: Object[Any]) -> str:
    """Return a digest of what an object specifies."""
    content = o.spec, dict(o.labels), dict(o.annotations)
    # only mappings whose keys are strings can be encoded in a fixed order
    plain = msgspec.to_builtins(content, str_keys=True, enc_hook=encode_extension)
    data = msgspec.json.encode(plain, order="deterministic")
    return hashlib.blake2b(data, digest_size=16).hexdigest()
