"""The folders that `--configDir` names, and whose objects each of them holds."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from pilot.lib.flags import FlagError

_CLUSTER = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)


class ConfigFolder(NamedTuple):
    """A folder, as it is written, and the cluster whose objects its files hold."""

    path: str
    cluster: str


def parse_config_folders(texts: Sequence[str], own: str, needed: bool = True) -> tuple[ConfigFolder, ...]:
    """Returns the folders of `FOLDER`, which is the own cluster's, and `CLUSTER=FOLDER`, in order. A folder whose name has an equals
    sign before any slash is written with a slash, like `./a=b`. FlagError where that makes no sense, or none is named and one is needed."""
    folders = tuple(_parse(text, own) for text in texts)
    if not folders and not needed:
        return ()
    if not folders:
        raise FlagError(
            "--configDir: say which folder to read the configuration from, such as --configDir=./samples/shop/config"
        )
    if needed and all(folder.cluster != own for folder in folders):
        raise FlagError(f"--configDir: none of the folders is that of the own cluster, {own} (--clusterID)")
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
    """FlagError where one folder is in the other: its files would be read twice."""
    one, two = os.path.realpath(folder.path), os.path.realpath(other.path)
    if one == two or os.path.commonpath((one, two)) in (one, two):
        raise FlagError(
            f"invalid argument for --configDir: {folder.path} and {other.path} are one folder, or one is inside of the other"
        )
