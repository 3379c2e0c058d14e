"""Requests for tests that follow them through listeners and routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Request(NamedTuple):
    """A request, or a TCP connection. `sni` is None for plaintext."""

    port: int
    host: str = ""
    path: str = "/"
    sni: str | None = None
    alpn: str = ""
    method: str = "GET"
    headers: Mapping[str, str] = {}
