"""Runs a box until its input ends, and prints its kubeconfig as JSON in one line: `python -m tests.cluster.box`."""

from __future__ import annotations

import asyncio
import json
import sys

from tests.cluster.box.box import Box


async def main() -> None:
    async with Box() as box:
        print(json.dumps(box.kubeconfig.read_text()), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(await box.describe(), file=sys.stderr)


asyncio.run(main())
