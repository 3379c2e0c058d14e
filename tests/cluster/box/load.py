"""Sends requests at a constant rate until the file /tmp/stop exists, and prints their number and the failures as JSON.

python load.py URL RATE
"""

from __future__ import annotations

import asyncio
import collections
import json
import pathlib
import sys

import aiohttp

STOP = pathlib.Path("/tmp/stop")


async def _send(session: aiohttp.ClientSession, url: str, results: collections.Counter[str]) -> None:
    try:
        async with session.get(url) as response:
            await response.read()
            results["good" if response.status == 200 else f"status {response.status}"] += 1
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        results[type(error).__name__] += 1


async def _run(url: str, rate: float) -> None:
    STOP.unlink(missing_ok=True)
    results: collections.Counter[str] = collections.Counter()
    loop = asyncio.get_running_loop()
    due = loop.time()
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(15)) as session,
        asyncio.TaskGroup() as tasks,
    ):
        while not STOP.exists():
            tasks.create_task(_send(session, url, results))
            due += 1 / rate
            await asyncio.sleep(max(0, due - loop.time()))
    print(json.dumps(results))


asyncio.run(_run(sys.argv[1], float(sys.argv[2])))
