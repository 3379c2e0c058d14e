#!/usr/bin/env python3
"""Measure how much hostile objects that are stored in the cluster delay a restart.

    python bench/hostile_restart.py [--objects 24000] [--services 2000] [--source file|apiserver] [--repeats 3]

A control plane starts with ordinary services, and then with the same services and with hostile objects in one
namespace. The output has the seconds until it is ready, the seconds until every hostile object is a problem, and the
peak memory. The exit status is 1 if it is ready more than 10 % later, or if a hostile object is no problem with a path.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from testing.processes.process import ControlPlane

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMESPACE, PER_FILE, MOST_DELAY = "hostile", 1000, 1.1
MOST_SECONDS = 600
Plain = dict[str, Any]


def make(group: str, kind: str, namespace: str, name: str, spec: Any) -> Plain:
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": "2025-01-01T00:00:00Z"}
    return {"apiVersion": f"{group}.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def honest_objects(services: int) -> Iterator[Plain]:
    for n in range(services):
        host, namespace = f"s{n}.example.com", f"ns-{n % 20}"
        ports = [{"number": 80, "name": "http", "protocol": "HTTP"}]
        entry = {"hosts": [host], "ports": ports, "resolution": "STATIC", "endpoints": [{"address": "192.0.2.1"}]}
        yield make("networking", "ServiceEntry", namespace, f"s{n}", entry)
        route = {"hosts": [host], "http": [{"timeout": "3s", "route": [{"destination": {"host": host}}]}]}
        yield make("networking", "VirtualService", namespace, f"s{n}", route)


def _entry(_: int) -> Plain:
    hosts = [f"h{n}.example.com" for n in range(100)]
    ports = [{"number": n + 1, "name": f"p{n}", "protocol": "HTTP"} for n in range(100)]
    return make("networking", "ServiceEntry", "", "", {"hosts": hosts, "ports": ports, "resolution": "DNS"})


def _routes(n: int) -> Plain:
    pattern = rf"(?i)[\pL]{{300}}{n}"
    match = [{"uri": {"regex": pattern}, "headers": {"x": {"regex": pattern}}}]
    headers = {"request": {"set": {"x": "%A(" * 200}}}
    route = {"match": match, "headers": headers, "route": [{"destination": {"host": "a"}}]}
    return make("networking", "VirtualService", "", "", {"hosts": ["a"], "http": [route]})


def _policy(_: int) -> Plain:
    sources = [{"source": {"principals": [f"p{n}"]}} for n in range(300)]
    conditions = [{"key": f"request.headers[x-{n}]", "values": ["a"]} for n in range(300)]
    return make("security", "AuthorizationPolicy", "", "", {"rules": [{"from": sources, "when": conditions}]})


def _sidecar(_: int) -> Plain:
    egress = [{"port": {"number": n + 1, "protocol": "HTTP", "name": f"p{n}"}, "hosts": ["*/*"]} for n in range(129)]
    return make("networking", "Sidecar", "", "", {"workloadSelector": {"labels": {"a": "b"}}, "egress": egress})


def _filter(_: int) -> Plain:
    patch = {"operation": "MERGE", "value": {f"unknown{n}": n for n in range(100)}}
    return make("networking", "EnvoyFilter", "", "", {"configPatches": [{"applyTo": "CLUSTER", "patch": patch}]}) | {
        "apiVersion": "networking.istio.io/v1alpha3"
    }


KINDS: tuple[Callable[[int], Plain], ...] = (_entry, _routes, _policy, _sidecar, _filter)


def hostile_objects(count: int) -> Iterator[Plain]:
    for n in range(count):
        plain = KINDS[n % len(KINDS)](n)
        plain["metadata"] |= {"name": f"o{n}", "namespace": NAMESPACE}
        yield plain


class Start(NamedTuple):
    """The seconds until the control plane was ready and until all problems were reported, and the peak memory in MB."""

    ready: float
    reported: float
    memory: float


def write(folder: pathlib.Path, name: str, objects: Iterator[Plain]) -> None:
    listed = list(objects)
    for start in range(0, len(listed), PER_FILE):
        content = {"apiVersion": "v1", "kind": "List", "items": listed[start : start + PER_FILE]}
        (folder / f"{name}-{start}.json").write_text(json.dumps(content))


def problems(plane: ControlPlane) -> set[str]:
    """Return the names of the hostile objects that have a problem with a path."""
    url = f"http://127.0.0.1:{plane.ports['httpAddr']}/debug/problemz?namespace={NAMESPACE}"
    try:
        with urllib.request.urlopen(url) as response:
            return {row["name"] for row in json.load(response) if row.get("path")}
    except urllib.error.HTTPError as fault:
        if fault.code != HTTPStatus.NOT_FOUND:
            raise
        return set()  # the namespace has no objects yet


def wait_ready(plane: ControlPlane) -> None:
    while True:
        plane.check_alive()
        with contextlib.suppress(OSError):
            plane.get("/ready", "httpAddr")
            return
        time.sleep(0.05)


def start(config: pathlib.Path, source: str, hostile: int) -> Start:
    with tempfile.TemporaryDirectory() as work:
        wrapper = (sys.executable, "-m", "testing.apiserver.folder") if source == "apiserver" else ()
        began = time.monotonic()
        plane = ControlPlane(pathlib.Path(work), config, environ={"PYTHONPATH": str(ROOT)}, wrapper=wrapper)
        try:
            wait_ready(plane)
            ready = time.monotonic() - began
            while (count := len(problems(plane))) < hostile and time.monotonic() - began < MOST_SECONDS:
                plane.check_alive()
                time.sleep(1)
            status = pathlib.Path(f"/proc/{plane.child.pid}/status").read_text()
            peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
            if count < hostile:
                print(f"{hostile - count} hostile objects are no problem with a path")
            return Start(ready, time.monotonic() - began if count >= hostile else float("inf"), peak)
        finally:
            plane.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=24_000, help="hostile objects")
    parser.add_argument("--services", type=int, default=2000, help="ordinary services, with a VirtualService each")
    parser.add_argument("--source", choices=("file", "apiserver"), default="file", help="source of configuration")
    parser.add_argument("--repeats", type=int, default=3, help="starts of each kind; the fastest counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder)
        write(config, "honest", honest_objects(options.services))
        without = min(start(config, options.source, 0) for _ in range(options.repeats))
        print(f"without hostile objects: ready after {without.ready:.1f} s, {without.memory:.0f} MB", flush=True)
        write(config, "hostile", hostile_objects(options.objects))
        size = sum(file.stat().st_size for file in config.glob("hostile-*"))
        after = min(start(config, options.source, options.objects) for _ in range(options.repeats))
    print(
        f"with {options.objects} hostile objects of {size / 1e6:.0f} MB: ready after {after.ready:.1f} s, "
        f"all reported after {after.reported:.1f} s, {after.memory:.0f} MB"
    )
    return int(after.ready > without.ready * MOST_DELAY or after.reported == float("inf"))


if __name__ == "__main__":
    sys.exit(main())
