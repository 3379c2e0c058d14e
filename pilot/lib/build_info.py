"""The version of the running control plane."""

from __future__ import annotations

import functools
import importlib.metadata
import json
from typing import NamedTuple

DISTRIBUTION = "pyistiod"
UNKNOWN = "unknown"


class BuildInfo(NamedTuple):
    """The version, the git commit and the status, such as "Clean".

    The commit and the status are "unknown" unless the package was installed from git.
    """

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
    """Return the build information of the installed package.

    https://packaging.python.org/specifications/direct-url/
    """
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return BuildInfo()
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    revision = origin.get("vcs_info", {}).get("commit_id", UNKNOWN)
    return BuildInfo(distribution.version, revision, "Clean" if revision != UNKNOWN else UNKNOWN)
