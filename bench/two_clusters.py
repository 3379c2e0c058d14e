"""Splits a generated mesh into the folders of two clusters, so that every service has endpoints in both."""

from __future__ import annotations

import pathlib
import shutil

import yaml

IN_BOTH = ("service-", "node-", "namespace-")


def split(local: pathlib.Path, remote: pathlib.Path) -> None:
    """Move every second Pod, with its part of the EndpointSlice, to the other cluster. Services are copied.

    If an EndpointSlice is later rewritten as a whole, Pods that the first cluster does not have are not endpoints
    there.
    """
    shutil.rmtree(remote, ignore_errors=True)
    remote.mkdir(parents=True)
    for file in sorted(local.glob("*.yaml")):
        if file.name.startswith(IN_BOTH):
            shutil.copy(file, remote / file.name)
        elif file.name.startswith("pod-") and _is_remote(file.stem):
            file.rename(remote / file.name)
        elif file.name.startswith("endpointslice-"):
            _split_slice(file, remote / file.name)


def _split_slice(file: pathlib.Path, other: pathlib.Path) -> None:
    plain = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
    for target, is_remote in ((file, False), (other, True)):
        endpoints = [e for e in plain["endpoints"] if _is_remote(e.get("targetRef", {}).get("name", "")) is is_remote]
        target.write_text(yaml.dump({**plain, "endpoints": endpoints}, Dumper=yaml.CSafeDumper, sort_keys=False))


def _is_remote(pod: str) -> bool:
    """Return whether a Pod, `<app>-<number>`, has an odd number."""
    number = pod.rpartition("-")[2]
    return number.isdecimal() and int(number) % 2 == 1
