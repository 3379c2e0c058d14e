"""A TLS port of a reference, with what is needed to verify it."""

from __future__ import annotations

from typing import NamedTuple


class ReferenceServer(NamedTuple):
    """The secure xDS port or the webhook of a reference: its address HOST:PORT, its root certificates, and the name in
    its certificate."""

    address: str
    roots: bytes
    name: str
