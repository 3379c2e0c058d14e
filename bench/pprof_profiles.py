"""Check that `go tool pprof` opens the profiles of a busy control plane, and that they contain functions of this
project.

    python bench/pprof_profiles.py [--shape S2] [--seconds 2] [--go go]

Meanwhile, configuration is edited twenty times a second, and proxies connect. The output has the first function of each
profile and the time the tool waited; it gives up after 1.5 times the duration plus 5 seconds. The exit status is 1 if a
profile cannot be opened or contains no function of this project. `trace` does not have Go's format and is only parsed.
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

from bench.static_mesh import SHAPES, Shape, edit, run_proxy, write_mesh
from testing.processes.process import ControlPlane

EDIT_SECONDS = 0.05
OWN_PREFIX = "pilot."


async def top(go: str, url: str, work: str) -> list[str]:
    """Return the output of `go tool pprof -top` for a profile."""
    pipe = asyncio.subprocess.PIPE
    command = (go, "tool", "pprof", "-top", url)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=pipe, env={**os.environ, "PPROF_TMPDIR": work}
    )
    out, err = await process.communicate()
    return (out or err).decode().splitlines()


async def edit_continuously(folder: pathlib.Path, shape: Shape) -> None:
    number = 0
    while True:
        await asyncio.to_thread(edit, folder, number, shape)
        number += 1
        await asyncio.sleep(EDIT_SECONDS)


async def is_opened(options: argparse.Namespace, plane: ControlPlane, name: str, work: str) -> bool:
    started = time.monotonic()
    lines = await top(options.go, f"http://127.0.0.1:{plane.ports['monitoringAddr']}/debug/pprof/{name}", work)
    function = next((line.split()[-1] for line in lines if OWN_PREFIX in line and not line.startswith("http")), "")
    print(
        f"{name:24} {time.monotonic() - started:5.1f} s  {function or 'no function of this project: ' + ' / '.join(lines[-3:])}",
        flush=True,
    )
    return bool(function)


async def is_trace(plane: ControlPlane, seconds: int) -> bool:
    def read() -> str:
        return plane.get(f"/debug/pprof/trace?seconds={seconds}")

    events = json.loads(await asyncio.to_thread(read))["traceEvents"]
    function = next((event["name"] for event in events if event["name"].startswith(OWN_PREFIX)), "")
    print(f"{'trace':24} {len(events)} events  {function or 'no function of this project'}", flush=True)
    return bool(function)


async def measure(options: argparse.Namespace, work: str) -> bool:
    """Return whether every profile was opened."""
    folder, shape = pathlib.Path(work) / "config", SHAPES[options.shape]
    folder.mkdir()
    write_mesh(folder, shape)
    plane = ControlPlane(pathlib.Path(work), folder)
    await asyncio.to_thread(plane.wait_ready)
    tasks = [asyncio.create_task(run_proxy(plane.xds, number, shape)) for number in range(shape.proxies)]
    tasks.append(asyncio.create_task(edit_continuously(folder, shape)))
    try:
        names = [f"{name}?seconds={options.seconds}" for name in ("heap", "profile", "allocs", "goroutine")] + [
            "goroutine",
            "threadcreate",
        ]
        results = [await is_opened(options, plane, name, work) for name in names]
        return all([*results, await is_trace(plane, 1)])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(plane.stop)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="S2", choices=SHAPES, help="shape of the mesh")
    parser.add_argument("--seconds", type=int, default=2, help="duration of each profile")
    parser.add_argument("--go", default="go", help="path of the go command")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        return 0 if asyncio.run(measure(options, work)) else 1


if __name__ == "__main__":
    sys.exit(main())
