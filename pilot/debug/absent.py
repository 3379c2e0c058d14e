"""Pages of what this control plane has none of. They answer as istiod does where there is none: tools ask for every page that they know."""
from __future__ import annotations

from typing import Any

from pilot.debug.page import Query
from pilot.debug.sources import Sources


def mcsz(sources: Sources, query: Query) -> Any:
    """Returns None: ServiceImports and ServiceExports are not read."""
    return
