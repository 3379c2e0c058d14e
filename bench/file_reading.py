#!/usr/bin/env python3
"""Measure the cost of reading large files in a running control plane: time, CPU time, and stalls of the event loop.

    python bench/file_reading.py

Each file is written to a watched folder, read, changed at its end, and read again. Meanwhile, a heartbeat task measures
the longest stall of the loop, as wall-clock time and as CPU time of the process, which other load does not increase.
The commit of the rows is measured separately, because it runs on the loop without interruption.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

import uvloop
import yaml

from pilot.bootstrap.control_plane import SWITCH_SECONDS
from pilot.bootstrap.first_load import GC_THRESHOLDS
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.namespace_filter import Edit
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.lib.logging.log import configure
from pilot.mesh.tables.database import Mesh

ENTRY = """apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: entry-{0}
  namespace: shop
spec:
  hosts:
  - host-{0}.shop.example.com
  location: MESH_EXTERNAL
  resolution: {1}
  ports:
  - number: 443
    name: tls
    protocol: TLS
{2}"""
FLOW = """apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: entry-{0}, namespace: shop}}
spec:
  hosts: [host-{0}.shop.example.com]
  location: MESH_EXTERNAL
  resolution: {1}
  ports: [{{number: 443, name: tls, protocol: TLS}}]
{2}"""
SERVICE = """apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: routes-{0}
  namespace: shop
spec:
  hosts:
  - host-{0}.shop.example.com
  http:
  - route:
    - destination:
        host: host-{0}.shop.example.com
    timeout: 5s
  - name: never
    route:
    - destination:
        host: host-{0}.shop.example.com
"""
FOLDED = ENTRY.replace("spec:\n", "  annotations:\n    note: >-\n      folded\n      text\nspec:\n")
MISSPELLED, NO_FIELD, VALID = "  exprotTo: [a]\n", "", "  exportTo: ['.']\n"


class Heart:
    """A task that runs every millisecond.

    `silence` is its longest delay in seconds, `used` the same in CPU-seconds of the process.
    """

    def __init__(self) -> None:
        self.silence = self.used = 0.0

    async def beat(self) -> None:
        last, cpu = time.monotonic(), time.process_time()
        while True:
            await asyncio.sleep(0.001)
            now, used = time.monotonic(), time.process_time()
            self.silence, self.used = max(self.silence, now - last - 0.001), max(self.used, used - cpu)
            last, cpu = now, used


class CountingBatch(Batch):
    """A batch that counts how often it received edits, even empty ones."""

    puts = 0

    def put(self, edits: Iterable[Edit]) -> None:
        super().put(edits)
        self.puts += 1


def documents(document: str, size: int) -> str:
    """Return copies of a document that make a file of this many bytes."""
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(document.format(len(parts), "NONE", MISSPELLED))
        length += len(parts[-1]) + 4
    return "---\n".join(parts)


def valid_documents() -> str:
    """Return 10 MB of valid objects."""
    return documents(ENTRY, 10_000_000).replace(MISSPELLED, VALID)


def items(count: int) -> str:
    """Return a List of misspelled objects."""
    indented = (ENTRY.format(i, "NONE", MISSPELLED).replace("\n", "\n  ").rstrip(" ") for i in range(count))
    return "apiVersion: v1\nkind: List\nitems:\n" + "".join(f"- {item}" for item in indented)


def json_list(size: int, more: str = VALID, indent: int | None = None) -> str:
    """Return a List of objects as JSON with at least this many bytes. `more` is the end of each object."""
    item = (
        json.dumps(yaml.safe_load(ENTRY.format(0, "NONE", more)), indent=indent)
        .replace("entry-0", "entry-%d")
        .replace("host-0", "host-%d")
    )
    return (
        '{"apiVersion":"v1","kind":"List","items":['
        + ",".join(item % (i, i) for i in range(size // len(item) + 1))
        + "]}"
    )


FILES: dict[str, Callable[[], str]] = {
    "800 misspelled objects, 254 KB": lambda: documents(ENTRY, 254_000),
    "a List of 800 misspelled objects": lambda: items(800),
    "4 MB of objects with warnings": lambda: documents(SERVICE, 4_000_000),
    "10 MB of misspelled objects": lambda: documents(ENTRY, 10_000_000),
    "10 MB of valid objects": valid_documents,
    "10 MB of valid objects in JSON": lambda: json_list(10_000_000),
    "10 MB of misspelled objects in JSON": lambda: json_list(10_000_000, MISSPELLED),
    "10 MB of misspelled objects in indented JSON": lambda: json_list(10_000_000, MISSPELLED, indent=2),
    "10 MB with a wrong type in each object": lambda: valid_documents().replace(": 443", ": x"),
    "10 MB with a number out of range in each object": lambda: valid_documents().replace(": 443", ": 0"),
    "10 MB with an unknown enum value in each object": lambda: valid_documents().replace("EXTERNAL", "ELSEWHERE"),
    "10 MB of lists instead of objects": lambda: documents("- " + ENTRY.replace("\n", "\n  ").rstrip(" "), 10_000_000),
    "10 MB of objects with warnings": lambda: documents(SERVICE, 10_000_000),
    "10 MB of misspelled objects in flow style": lambda: documents(FLOW, 10_000_000),
    "10 MB of misspelled objects with folded text": lambda: documents(FOLDED, 10_000_000),
    "10 MB of misspelled objects with CRLF line ends": lambda: documents(ENTRY, 10_000_000).replace("\n", "\r\n"),
}


class WatchedFolder:
    """A folder watched as a control plane does."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.mesh, self.longest_commit = folder, Mesh(), 0.0
        self.problems = ProblemStore()
        self.batch = batch = CountingBatch(
            self.mesh, asyncio.get_running_loop(), parse_duration("100ms"), parse_duration("10s"), self._committed
        )
        self.source = FileSource(str(folder), batch, Ledger(self.problems).source(0, "files"))
        self.source.load_initial()
        self.replaced = asyncio.Event()

    def _committed(self, commit: Commit) -> None:
        self.longest_commit = max(self.longest_commit, commit.took)

    async def write(self, text: str, name: str) -> tuple[float, ...]:
        """Write the file, and return seconds and CPU-seconds until it is read, and the longest stall, the same in CPU
        time, and the longest commit, in milliseconds.
        """
        heart = Heart()
        beat = asyncio.create_task(heart.beat())
        await asyncio.sleep(0.05)
        heart.silence = heart.used = self.longest_commit = 0.0
        (self.folder / ".next").write_text(text)
        started, cpu = time.monotonic(), time.process_time()
        reads = self.batch.puts
        (self.folder / ".next").rename(self.folder / name)
        while self.batch.puts == reads:
            await asyncio.sleep(0.005)
        seconds, cpu_seconds = time.monotonic() - started, time.process_time() - cpu
        await asyncio.sleep(0.5)
        while len(self.batch):
            await asyncio.sleep(0.005)
        beat.cancel()
        return seconds, cpu_seconds, heart.silence * 1000, heart.used * 1000, self.longest_commit * 1000


async def measure() -> None:
    print("| file | step | seconds | CPU-s | longest stall, ms | CPU, ms | commit, ms | problems |")
    print("|---|---|---|---|---|---|---|---|")
    for name, content_of in FILES.items():
        text = content_of()
        with tempfile.TemporaryDirectory() as folder:
            watched_folder = WatchedFolder(pathlib.Path(folder))
            await watched_folder.source.start()
            await asyncio.sleep(0.5)
            for step, content in (
                ("read", text),
                ("append an object", text + "---\n" + ENTRY.format("last", "NONE", "")),
            ):
                if step == "read" or ("kind: List" not in text and text[0] != "{"):
                    seconds, cpu_seconds, silence, cpu, commit = await watched_folder.write(
                        content, "large.json" if text[0] == "{" else "large.yaml"
                    )
                    figures = f"{seconds:.2f} | {cpu_seconds:.2f} | {silence:.0f} | {cpu:.0f} | {commit:.0f}"
                    print(f"| {name} | {step} | {figures} | {len(watched_folder.problems)} |", flush=True)
            await watched_folder.source.stop()
            del watched_folder
            gc.collect()


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.NamedTemporaryFile() as log:
        configure("default:info", False, [log.name])
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_SECONDS)
        uvloop.run(measure())
        logging.shutdown()


if __name__ == "__main__":
    main()
