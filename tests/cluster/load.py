"""Load on a service while something else happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator

from tests.cluster.box.box import Box
from tests.cluster.box.images import REPOSITORY
from tests.cluster.mesh import SHOP

RATE = 100
_PROGRAM = str(REPOSITORY / "tests/cluster/box/load.py")


class Load:
    """The number of requests that were sent, after the load has ended."""

    requests = 0


@contextlib.asynccontextmanager
async def load_on(box: Box, source: str, url: str, area: str = SHOP) -> AsyncIterator[Load]:
    """Send requests from a pod. Raise AssertionError at the end if one has failed."""
    load = Load()
    program = (sys.executable, _PROGRAM, url, str(RATE))
    sender = asyncio.create_task(box.run_in(area, source, *program, seconds=900))
    await asyncio.sleep(1)
    try:
        yield load
    finally:
        if not sender.done():
            await box.run_in(area, source, "touch", "/tmp/stop")
        results = json.loads(await sender)
    load.requests = sum(results.values())
    assert set(results) == {"good"}, results
