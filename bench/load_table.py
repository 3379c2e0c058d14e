#!/usr/bin/env python3
"""Measure the load table: one server on one core, the fleet on the other, and a line for each shape and event.

    python bench/load_table.py --load FOLDER [--shapes S2,S3] [--clusters 2] [--typical] [--work DIR] [--repeats 10]

FOLDER contains the load programs (mesh.py, fleet.py, load.py) and `reference/SHAPE.json` with another control plane's
figures for the same shapes. --typical adds 20 Telemetries and 20 EnvoyFilters (typical_objects.py); their cost is
measured more precisely by typical_objects_cost.py. The objects of each shape are written as files below --work.
CPU-seconds are those of the server's process tree.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Any

import yaml
from two_clusters import split
from typical_objects import typical_objects

EVENTS = {
    "S2": "endpoint,virtualservice,destinationrule,noop,reconnect",
    "S3": "endpoint,virtualservice,destinationrule,noop,reconnect",
    "S10k": "endpoint,virtualservice,noop",
    "P100": "endpoint,virtualservice",
    "P10k": "endpoint,virtualservice",
    "S1": "endpoint,virtualservice,destinationrule,noop,reconnect",
    "S100": "endpoint,virtualservice",
    "S0": "endpoint,virtualservice,destinationrule,noop,reconnect",
}
LIMITS: dict[tuple[str, str], float] = {  # in CPU-seconds, MB, seconds or messages
    ("S2", "cold"): 4.5,
    ("S2", "reconnect"): 4.0,
    ("S2", "virtualservice"): 0.27,
    ("S2", "destinationrule"): 0.25,
    ("S2", "endpoint"): 0.11,
    ("S2", "peak MB"): 700,
    ("S2", "noop messages"): 0,
    ("S3", "cold"): 2.0,
    ("S3", "virtualservice"): 0.020,
    ("S3", "peak MB"): 341,
    ("S3", "noop messages"): 0,
    ("S10k", "cold"): 5.5,
    ("S10k", "virtualservice"): 0.5,
    ("S10k", "peak MB"): 1000,
    ("S10k", "start to ready s"): 30,
    ("S10k", "idle %"): 1.0,
    ("S10k", "noop messages"): 0,
    ("P100", "virtualservice"): 0.020,
    ("P10k/P100", "virtualservice ratio"): 1.3,
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Server:
    """A control plane on core 0. `folders` are values of `--configDir`."""

    def __init__(self, folders: list[str], log: pathlib.Path, command: str) -> None:
        self.grpc, self.http, self.monitoring = free_port(), free_port(), free_port()
        arguments = [
            "taskset",
            "-c",
            "0",
            command,
            "discovery",
            "--ctrlz_port",
            "0",
            *(f"--configDir={f}" for f in folders),
        ]
        ports = {
            "grpcAddr": self.grpc,
            "httpAddr": self.http,
            "monitoringAddr": self.monitoring,
            "secureGRPCAddr": free_port(),
        }
        ports["httpsAddr"] = free_port()
        for flag, port in ports.items():
            arguments += [f"--{flag}", f"127.0.0.1:{port}"]
        started = time.monotonic()
        self.log = log.open("wb")
        self.process = subprocess.Popen(arguments, stdout=self.log, stderr=self.log)
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() - started > 300:
                raise SystemExit(f"the server did not become ready; see {log}")
            time.sleep(0.05)
        self.seconds = time.monotonic() - started

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/ready", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def settle(self) -> None:
        """Wait until the server is idle, so that work after its start is not measured."""
        deadline = time.monotonic() + 30
        used = self._used()
        while time.monotonic() < deadline:
            time.sleep(3)
            previous, used = used, self._used()
            if used - previous < 0.1:
                return

    def _used(self) -> float:
        """Return the CPU-seconds of all threads."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def run_shape(shape: str, options: argparse.Namespace, work: pathlib.Path) -> dict[str, Any]:
    """Write the mesh, start the server, and run the events. Return the load program's figures and the start-up time."""
    folder, out = work / shape, work / f"{shape}.json"
    load = [sys.executable, str(options.load / "load.py"), "--shape", shape]
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([*load, "--config-dir", str(folder), "--write-only"], check=True)
    folders = [str(folder)]
    if options.clusters == 2:
        split(folder, work / f"{shape}-west")
        folders.append(f"west={work / f'{shape}-west'}")
    if options.typical:
        (folder / "typical.yaml").write_text(
            yaml.dump_all(typical_objects(*names_of(options.load, shape)), Dumper=yaml.CSafeDumper)
        )
    server = Server(folders, work / f"{shape}.log", options.command)
    try:
        server.settle()
        target = [
            "--config-dir",
            str(folder),
            "--skip-write",
            "--address",
            f"127.0.0.1:{server.grpc}",
            "--pid",
            str(server.process.pid),
        ]
        plan = ["--events", EVENTS[shape], "--repeats", str(options.repeats), "--json", str(out)]
        subprocess.run(["taskset", "-c", "1", *load, *target, *plan], check=True)
    finally:
        server.stop()
    figures: dict[str, Any] = json.loads(out.read_text())
    figures["start to ready s"] = server.seconds
    return figures


def names_of(load: pathlib.Path, name: str) -> tuple[list[str], list[str]]:
    """Return the namespaces and apps of a shape."""
    sys.path.insert(0, str(load))
    programs = importlib.import_module("mesh")
    shape = programs.SHAPES[name]
    return [programs.namespace_name(n) for n in range(shape.namespaces)], [
        programs.app_name(n) for n in range(shape.services)
    ]


def rows(shape: str, figures: dict[str, Any]) -> dict[str, float]:
    """Return the figures of one run by event: medians of CPU-seconds, peak memory, idle share, messages of a no-op."""
    timed = ("cold", "reconnect", "virtualservice", "destinationrule", "endpoint")
    out = {event: statistics.median(r["cpu_s"] for r in figures[event]) for event in timed if figures.get(event)}
    out["peak MB"] = figures["peak_mb"]
    out["idle %"] = 100 * figures["idle_cpu"]
    if figures.get("noop"):
        out["noop messages"] = statistics.median(r["messages"] for r in figures["noop"])
    if "start to ready s" in figures:
        out["start to ready s"] = figures["start to ready s"]
    return out


def table(ours: dict[str, dict[str, float]], reference: dict[str, dict[str, float]]) -> str:
    lines = ["| shape | event | reference | ours | limit | met |", "|---|---|---|---|---|---|"]
    for shape, events in ours.items():
        for event, value in events.items():
            other, limit = reference.get(shape, {}).get(event), LIMITS.get((shape, event))
            verdict = "" if limit is None else ("yes" if value <= limit else "**no**")
            cells = [
                shape,
                event,
                "–" if other is None else f"{other:.4g}",
                f"{value:.4g}",
                "" if limit is None else f"{limit:.4g}",
                verdict,
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_ratio(figures: dict[str, dict[str, float]]) -> None:
    if {"P100", "P10k"} <= figures.keys():
        figures["P10k/P100"] = {
            "virtualservice ratio": figures["P10k"]["virtualservice"] / figures["P100"]["virtualservice"]
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--load", type=lambda p: pathlib.Path(p).resolve(), required=True, help="folder of the load programs"
    )
    parser.add_argument("--shapes", default="S2,S3,S10k,P100,P10k", help="load shapes, separated by commas")
    parser.add_argument("--repeats", type=int, default=10, help="repeats of each event (default 10)")
    parser.add_argument(
        "--clusters", type=int, choices=(1, 2), default=1, help="2: half of each service's Pods are in a second cluster"
    )
    parser.add_argument("--typical", action="store_true", help="add 20 Telemetries and 20 EnvoyFilters")
    parser.add_argument("--work", help="folder for meshes, logs and figures (default: a temporary folder)")
    search = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])
    parser.add_argument("--command", default=shutil.which("pilot-discovery", path=search))
    options = parser.parse_args()
    work = pathlib.Path(options.work or tempfile.mkdtemp(prefix="bench-"))
    work.mkdir(parents=True, exist_ok=True)
    ours: dict[str, dict[str, float]] = {}
    reference: dict[str, dict[str, float]] = {}
    for shape in options.shapes.split(","):
        ours[shape] = rows(shape, run_shape(shape, options, work))
        reference_file = options.load / "reference" / f"{shape}.json"
        if reference_file.exists():
            reference[shape] = rows(shape, json.loads(reference_file.read_text()))
    with_ratio(ours)
    with_ratio(reference)
    text = table(ours, reference)
    (work / "table.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
