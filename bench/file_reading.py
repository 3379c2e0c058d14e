#!/usr/bin/env python3
"""What reading large files costs a running control plane: seconds, CPU-seconds, and the longest silence of its event loop.

    python bench/file_reading.py

Each file is written into a folder that is followed, read, changed at its end, and read again. Between, a heartbeat on the loop
measures how long the loop answers nobody: in time, and in CPU time of the process, which others on the machine do not lengthen. The
commit of the rows is measured beside, because it happens on the loop as a whole.
"""

from __future__ import annotations

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
MISSPELT, WARNED, RIGHT = "  exprotTo: [a]\n", "", "  exportTo: ['.']\n"


class Heart:
    """A task that wants to run every millisecond; `silence` is the longest time that it was late, in seconds, `used` in
    CPU-seconds of the process."""

    def __init__(self) -> None:
        self.silence = self.used = 0.0

    async def beat(self) -> None:
        last, cpu = time.monotonic(), time.process_time()
        while True:
            await asyncio.sleep(0.001)
            now, used = time.monotonic(), time.process_time()
            self.silence, self.used = max(self.silence, now - last - 0.001), max(self.used, used - cpu)
            last, cpu = now, used


class Counting(Batch):
    """A batch that knows how often edits came, none at all included."""

    looks = 0

    def put(self, edits: Iterable[Edit]) -> None:
        super().put(edits)
        self.looks += 1


def documents(document: str, size: int) -> str:
    """Return as many of the documents as make a file of that many bytes."""
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(document.format(len(parts), "NONE", MISSPELT))
        length += len(parts[-1]) + 4
    return "---\n".join(parts)


def right_documents() -> str:
    """Return 10 MB of right objects."""
    return documents(ENTRY, 10_000_000).replace(MISSPELT, RIGHT)


def items(count: int) -> str:
    """Return one list of misspelt objects."""
    indented = (ENTRY.format(i, "NONE", MISSPELT).replace("\n", "\n  ").rstrip(" ") for i in range(count))
    return "apiVersion: v1\nkind: List\nitems:\n" + "".join(f"- {item}" for item in indented)


def json_list(size: int, more: str = RIGHT, indent: int | None = None) -> str:
    """Return a list of objects as JSON, of at least that many bytes; `more` is at the end of each."""
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
    "800 misspelt objects, 254 KB": lambda: documents(ENTRY, 254_000),
    "a list of 800 misspelt objects": lambda: items(800),
    "4 MB of objects with warnings": lambda: documents(SERVICE, 4_000_000),
    "10 MB of misspelt objects": lambda: documents(ENTRY, 10_000_000),
    "10 MB of right objects": right_documents,
    "10 MB of right objects in JSON": lambda: json_list(10_000_000),
    "10 MB of misspelt objects in JSON": lambda: json_list(10_000_000, MISSPELT),
    "10 MB of misspelt objects in JSON of many lines": lambda: json_list(10_000_000, MISSPELT, indent=2),
    "10 MB with a value of a wrong type in each": lambda: right_documents().replace(": 443", ": x"),
    "10 MB with a number out of range in each": lambda: right_documents().replace(": 443", ": 0"),
    "10 MB with a word that is none of the choices in each": lambda: right_documents().replace("EXTERNAL", "ELSEWHERE"),
    "10 MB of lists instead of objects": lambda: documents("- " + ENTRY.replace("\n", "\n  ").rstrip(" "), 10_000_000),
    "10 MB of objects with warnings": lambda: documents(SERVICE, 10_000_000),
    "10 MB of misspelt objects in brackets": lambda: documents(FLOW, 10_000_000),
    "10 MB of misspelt objects with a folded text": lambda: documents(FOLDED, 10_000_000),
    "10 MB of misspelt objects with line ends of Windows": lambda: documents(ENTRY, 10_000_000).replace("\n", "\r\n"),
}


class Followed:
    """A folder that is followed as a control plane does it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.mesh, self.took = folder, Mesh(), 0.0
        self.problems = ProblemStore()
        self.batch = batch = Counting(
            self.mesh, asyncio.get_running_loop(), parse_duration("100ms"), parse_duration("10s"), self._committed
        )
        self.source = FileSource(str(folder), batch, Ledger(self.problems).source(0, "files"))
        self.source.load_initial()
        self.replaced = asyncio.Event()

    def _committed(self, commit: Commit) -> None:
        self.took = max(self.took, commit.took)

    async def write(self, text: str, name: str) -> tuple[float, ...]:
        """Put the file in place; return seconds and CPU-seconds until it is read, and in ms the
        longest silence, the same in CPU time, and the longest commit."""
        heart = Heart()
        beating = asyncio.create_task(heart.beat())
        await asyncio.sleep(0.05)
        heart.silence = heart.used = self.took = 0.0
        (self.folder / ".next").write_text(text)
        started, cpu = time.monotonic(), time.process_time()
        reads = self.batch.looks
        (self.folder / ".next").rename(self.folder / name)
        while self.batch.looks == reads:
            await asyncio.sleep(0.005)
        seconds, used = time.monotonic() - started, time.process_time() - cpu
        await asyncio.sleep(0.5)
        while len(self.batch):
            await asyncio.sleep(0.005)
        beating.cancel()
        return seconds, used, heart.silence * 1000, heart.used * 1000, self.took * 1000


async def measure() -> None:
    print("| file | | seconds | CPU-s | longest silence, ms | of CPU, ms | commit, ms | problems |")
    print("|---|---|---|---|---|---|---|---|")
    for name, make in FILES.items():
        text = make()
        with tempfile.TemporaryDirectory() as folder:
            followed = Followed(pathlib.Path(folder))
            await followed.source.start()
            await asyncio.sleep(0.5)
            for step, content in (
                ("read", text),
                ("one more object", text + "---\n" + ENTRY.format("last", "NONE", "")),
            ):
                if step == "read" or ("kind: List" not in text and text[0] != "{"):
                    seconds, used, silence, cpu, took = await followed.write(
                        content, "large.json" if text[0] == "{" else "large.yaml"
                    )
                    figures = f"{seconds:.2f} | {used:.2f} | {silence:.0f} | {cpu:.0f} | {took:.0f}"
                    print(f"| {name} | {step} | {figures} | {len(followed.problems)} |", flush=True)
            await followed.source.stop()
            del followed
            gc.collect()


def main() -> None:
    with tempfile.NamedTemporaryFile() as log:
        configure("default:info", False, [log.name])
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_SECONDS)
        uvloop.run(measure())
        logging.shutdown()


if __name__ == "__main__":
    main()
