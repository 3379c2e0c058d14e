"""Parses the flag `--configDir` into configuration folders and their clusters."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from pilot.lib.flags import FlagError

_CLUSTER = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)


class ConfigFolder(NamedTuple):
    """A configuration folder, and the cluster that its objects belong to. `path` is spelled as in the flag."""

    path: str
    cluster: str


def parse_config_folders(texts: Sequence[str], own: str, needed: bool = True) -> tuple[ConfigFolder, ...]:
    """Parse values of the form `FOLDER`, which belongs to the local cluster, or `CLUSTER=FOLDER`.

    If a folder name contains an equals sign before any slash, it must be written with a path, such as `./a=b`. Raise
    FlagError if a value is invalid, or if `needed` is true and no folder belongs to the local cluster.
    """
    folders = tuple(_parse(text, own) for text in texts)
    if not folders and not needed:
        return ()
    if not folders:
        raise FlagError(
            "--configDir is required: name the configuration folder, for example --configDir=./samples/shop/config"
        )
    if needed and all(folder.cluster != own for folder in folders):
        raise FlagError(f"--configDir: no folder belongs to the local cluster {own} (--clusterID)")
    for index, folder in enumerate(folders):
        for other in folders[:index]:
            _check_apart(folder, other)
    return folders


def _parse(text: str, own: str) -> ConfigFolder:
    cluster, equals, path = text.partition("=")
    if not equals or "/" in cluster:
        return ConfigFolder(text, own)
    if not _CLUSTER.fullmatch(cluster) or not path:
        raise FlagError(f"invalid argument for --configDir: {text!r} is neither FOLDER nor CLUSTER=FOLDER")
    return ConfigFolder(path, cluster)


def _check_apart(folder: ConfigFolder, other: ConfigFolder) -> None:
    """Raise FlagError if two folders are the same or nested, because files would be read twice."""
    one, two = os.path.realpath(folder.path), os.path.realpath(other.path)
    if one == two or os.path.commonpath((one, two)) in (one, two):
        raise FlagError(
            f"invalid argument for --configDir: {folder.path} and {other.path} are the same folder or nested"
        )
