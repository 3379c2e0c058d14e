"""The version of the running control plane."""

from __future__ import annotations

import functools
import importlib.metadata
import json
from typing import NamedTuple

DISTRIBUTION = "pyistiod"
UNKNOWN = "unknown"


class BuildInfo(NamedTuple):
    """Version, git commit and status ("Clean"). Commit and status are "unknown" unless installed from git."""

    version: str = UNKNOWN
    revision: str = UNKNOWN
    status: str = UNKNOWN

    @property
    def tag(self) -> str:
        return self.version

    def __str__(self) -> str:
        return f"{self.version}-{self.revision}-{self.status}"


@functools.cache
def build_info() -> BuildInfo:
    """Return the metadata of the installed distribution.

    https://packaging.python.org/specifications/direct-url/
    """
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return BuildInfo()
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    revision = origin.get("vcs_info", {}).get("commit_id", UNKNOWN)
    return BuildInfo(distribution.version, revision, "Clean" if revision != UNKNOWN else UNKNOWN)
