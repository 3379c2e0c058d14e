"""Measure pilotctl proxy-status over three replicas, first with all of them and then with one that hangs.

    python bench/fleet_status.py [--proxies 3000] [--repeats 5] [--limit 2]

Three control planes serve the same files, and each has a third of the proxies, which acknowledge everything. A replica
hangs because its process is stopped. Each line has the time of the command from its start to its end, and its CPU time.
The exit status is 1 if a command takes longer than --limit seconds, if proxies of replicas that answer are missing, or
if the replica that hangs is not named.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from testing.clients.fleet import Fleet  # noqa: E402
from testing.mesh.world import proxy  # noqa: E402
from testing.processes.process import eventually, free_port  # noqa: E402

REPLICAS = 3
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: tea, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}], selector: {app: tea}}
"""


class Replica(NamedTuple):
    """A control plane in a process."""

    process: subprocess.Popen[bytes]
    xds: str
    monitoring: str


class Run(NamedTuple):
    """The output and the duration of a command."""

    status: int
    output: str
    errors: str
    seconds: float
    cpu: float


def start(folder: pathlib.Path, number: int) -> Replica:
    flags = ("grpcAddr", "monitoringAddr", "httpAddr", "httpsAddr", "secureGRPCAddr")
    ports = {flag: f"127.0.0.1:{free_port()}" for flag in flags}
    words = [word for flag, address in ports.items() for word in (f"--{flag}", address)]
    command = [sys.executable, "-m", "pilot.cli.pilot_discovery", "discovery", "--configDir", str(folder), *words]
    environment = {**os.environ, "ENABLE_CA_SERVER": "false"}
    with (folder.parent / f"replica-{number}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--ctrlz_port", "0"], cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    return Replica(process, ports["grpcAddr"], ports["monitoringAddr"])


async def connect(replicas: Sequence[Replica], proxies: int) -> list[Fleet]:
    """Connect proxies until each replica lists its share."""
    fleets = [Fleet(replica.xds) for replica in replicas]
    for number in range(proxies):
        node = proxy(
            "sidecar", f"tea-{number}", "shop", f"10.{1 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
        )
        await fleets[number % len(fleets)].connect(str(number), node, delta=False)
        await asyncio.sleep(0)
    for replica in replicas:
        while len(await asyncio.to_thread(statuses, replica)) < proxies // len(replicas):
            await asyncio.sleep(1.0)
    return fleets


def statuses(replica: Replica) -> list[object]:
    """Return the connected proxies of a replica that have acknowledged something."""
    with urllib.request.urlopen(f"http://{replica.monitoring}/debug/syncz") as response:
        return [one for one in json.load(response) if any(r.get("acked") for r in one["resources"].values())]


def run(addresses: Sequence[str]) -> Run:
    words = [word for address in addresses for word in ("--address", address)]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", "pilot.cli.pilotctl", *words, "proxy-status", "-o", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(result.returncode, result.stdout, result.stderr, seconds, cpu)


async def measure(
    replicas: Sequence[Replica], name: str, expected: int, silent: str, options: argparse.Namespace
) -> bool:
    """Run the command repeatedly and print a line for each run. Return whether all of them are right and in time."""
    is_good = True
    for _ in range(options.repeats):
        result = await asyncio.to_thread(run, [replica.monitoring for replica in replicas])
        listed = len(json.loads(result.output or "[]"))
        is_named = silent in result.errors and (result.status == 0) == (not silent)
        is_good &= listed == expected and is_named and result.seconds <= options.limit
        print(f"{name}: {listed} proxies, {result.seconds:.2f} s, {result.cpu:.2f} s CPU. {result.errors.strip()}")
    return is_good


async def main(options: argparse.Namespace, folder: pathlib.Path) -> int:
    (folder / "config").mkdir()
    (folder / "config" / "tea.yaml").write_text(SERVICE)
    replicas = [start(folder / "config", number) for number in range(REPLICAS)]
    try:
        for replica in replicas:
            await asyncio.to_thread(eventually, lambda r=replica: statuses(r) == [], 120, "a replica")
        fleets = await connect(replicas, options.proxies)
        is_good = await measure(replicas, "all replicas answer", options.proxies, "", options)
        replicas[0].process.send_signal(signal.SIGSTOP)
        rest = options.proxies - options.proxies // REPLICAS
        is_good &= await measure(replicas, "one replica hangs", rest, replicas[0].monitoring, options)
        replicas[0].process.send_signal(signal.SIGCONT)
        for fleet in fleets:
            for slot in list(fleet.clients):
                await fleet.disconnect(slot)
        return 0 if is_good else 1
    finally:
        for replica in replicas:
            replica.process.kill()
            replica.process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxies", type=int, default=3_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=2.0, help="seconds")
    with tempfile.TemporaryDirectory() as directory:
        sys.exit(asyncio.run(main(parser.parse_args(), pathlib.Path(directory))))
