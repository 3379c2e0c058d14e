"""The debug page certificatez, which lists the certificates that the control plane knows and their users."""

from __future__ import annotations

from typing import Any

from pilot.debug.certificates import list_certificates
from pilot.debug.page import Query
from pilot.debug.sources import Sources


async def certificatez(sources: Sources, query: Query) -> Any:
    """Return the certificates of the built-in authority and of Secrets, with their validity in Unix seconds."""
    return await list_certificates(sources)
