"""Profiles of a control plane at work as `go tool pprof` opens them: each kind must name functions of ours.

    python bench/pprof_profiles.py [--shape S2] [--seconds 2] [--go go]

Configuration is edited twenty times a second meanwhile, and proxies connect. It prints what came first in each profile and how long the tool
waited, which gives up after one and a half times the seconds and five more; the exit status is 1 where a profile was not opened or names nothing
of ours. `trace`, which is not Go's format, is only read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from bench.static_mesh import SHAPES, Shape, edit, stand_in, write_mesh
from testing.processes.process import ControlPlane

EDIT_SECONDS = 0.05
OURS = "pilot."


async def top(go: str, url: str, work: str) -> list[str]:
    """Return what the tool prints of a profile, the functions with the most first."""
    pipe = asyncio.subprocess.PIPE
    command = (go, "tool", "pprof", "-top", url)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=pipe, env={**os.environ, "PPROF_TMPDIR": work}
    )
    out, err = await process.communicate()
    return (out or err).decode().splitlines()


async def edit_always(folder: pathlib.Path, shape: Shape) -> None:
    number = 0
    while True:
        await asyncio.to_thread(edit, folder, number, shape)
        number += 1
        await asyncio.sleep(EDIT_SECONDS)


async def is_opened(options: argparse.Namespace, plane: ControlPlane, name: str, work: str) -> bool:
    started = time.monotonic()
    printed = await top(options.go, f"http://127.0.0.1:{plane.ports['monitoringAddr']}/debug/pprof/{name}", work)
    ours = next((line.split()[-1] for line in printed if OURS in line and not line.startswith("http")), "")
    print(
        f"{name:24} {time.monotonic() - started:5.1f} s  {ours or 'nothing of ours: ' + ' / '.join(printed[-3:])}",
        flush=True,
    )
    return bool(ours)


async def is_trace(plane: ControlPlane, seconds: int) -> bool:
    def read() -> str:
        return plane.get(f"/debug/pprof/trace?seconds={seconds}")

    events = json.loads(await asyncio.to_thread(read))["traceEvents"]
    ours = next((event["name"] for event in events if event["name"].startswith(OURS)), "")
    print(f"{'trace':24} {len(events)} events  {ours or 'nothing of ours'}", flush=True)
    return bool(ours)


async def measure(options: argparse.Namespace, work: str) -> bool:
    """Return whether every profile was opened."""
    folder, shape = pathlib.Path(work) / "config", SHAPES[options.shape]
    folder.mkdir()
    write_mesh(folder, shape)
    plane = ControlPlane(pathlib.Path(work), folder)
    await asyncio.to_thread(plane.wait_ready)
    busy = [asyncio.create_task(stand_in(plane.xds, number, shape)) for number in range(shape.proxies)]
    busy.append(asyncio.create_task(edit_always(folder, shape)))
    try:
        names = [f"{name}?seconds={options.seconds}" for name in ("heap", "profile", "allocs", "goroutine")] + [
            "goroutine",
            "threadcreate",
        ]
        good = [await is_opened(options, plane, name, work) for name in names]
        return all([*good, await is_trace(plane, 1)])
    finally:
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
        await asyncio.to_thread(plane.stop)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="S2", choices=SHAPES)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--go", default="go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        return 0 if asyncio.run(measure(options, work)) else 1


if __name__ == "__main__":
    sys.exit(main())
