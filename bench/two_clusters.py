"""Splits the files of a generated mesh over the folders of two clusters, so that every service has endpoints in both."""

from __future__ import annotations

import pathlib
import shutil

import yaml

IN_BOTH = ("service-", "node-", "namespace-")


def split(home: pathlib.Path, west: pathlib.Path) -> None:
    """Move every second Pod of a service, with its part of the EndpointSlice, to the other cluster, which has all Services too.

    A slice that is written again as a whole names Pods that the first cluster does not have: they are not endpoints there.
    """
    shutil.rmtree(west, ignore_errors=True)
    west.mkdir(parents=True)
    for file in sorted(home.glob("*.yaml")):
        if file.name.startswith(IN_BOTH):
            shutil.copy(file, west / file.name)
        elif file.name.startswith("pod-") and _moves(file.stem):
            file.rename(west / file.name)
        elif file.name.startswith("endpointslice-"):
            _split_slice(file, west / file.name)


def _split_slice(file: pathlib.Path, other: pathlib.Path) -> None:
    found = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
    for target, moved in ((file, False), (other, True)):
        kept = [e for e in found["endpoints"] if _moves(e.get("targetRef", {}).get("name", "")) is moved]
        target.write_text(yaml.dump({**found, "endpoints": kept}, Dumper=yaml.CSafeDumper, sort_keys=False))


def _moves(pod: str) -> bool:
    """Return whether a Pod, `<app>-<number>`, has an odd number."""
    number = pod.rpartition("-")[2]
    return number.isdecimal() and int(number) % 2 == 1
