"""The version of the running control plane."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import pathlib
import tomllib
import urllib.parse
from typing import NamedTuple

DISTRIBUTION = "pyistiod"
VERSION_HEADER = "X-Pilot-Version"
"""Response header of the monitoring port with the version, by which pilotctl recognizes control planes."""
UNKNOWN = "unknown"


class BuildInfo(NamedTuple):
    """The version, the git commit and the status, such as "Clean".

    The commit and the status are "unknown" unless the package was installed from git. The string omits unknown parts.
    """

    version: str = UNKNOWN
    revision: str = UNKNOWN
    status: str = UNKNOWN

    @property
    def tag(self) -> str:
        return self.version

    def __str__(self) -> str:
        return "-".join([self.version, *(part for part in self[1:] if part != UNKNOWN)])


@functools.cache
def build_info() -> BuildInfo:
    """Return the build information of the installed package. For an editable installation, its source has the version.

    https://packaging.python.org/specifications/direct-url/
    """
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return BuildInfo()
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    revision = origin.get("vcs_info", {}).get("commit_id", UNKNOWN)
    version = _source_version(origin["url"]) if origin.get("dir_info", {}).get("editable") else ""
    return BuildInfo(version or distribution.version, revision, "Clean" if revision != UNKNOWN else UNKNOWN)


def _source_version(url: str) -> str:
    """Return the version in the pyproject.toml of a source directory, or "" if it is unreadable."""
    try:
        text = pathlib.Path(urllib.parse.unquote(url.removeprefix("file://")), "pyproject.toml").read_text("utf-8")
        return str(tomllib.loads(text)["project"]["version"])
    except (OSError, ValueError, LookupError):
        return ""
