"""Declaration and enumeration of settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from pilot.lib.duration import Duration
from pilot.settings.checks import Check

FOREVER = Duration(2**63 - 1)


def setting(
    default: Any,
    about: str,
    *,
    flag: str = "",
    short: str = "",
    env: str = "",
    repeated: bool = False,
    may_be_empty: bool = False,
    maximum: float | None = None,
    check: Check | None = None,
) -> Any:
    """Return a dataclass field that declares a setting.

    `about` is the description. `flag`, `short` and `env` are the names of the flag, its one-letter form and the
    environment variable. With `repeated`, each use of the flag adds one value to a tuple, and commas are literal. With
    `may_be_empty`, a variable that is set to "" overrides the default. A number with a `maximum` is at least 0.
    `check` raises ValueError if a text is invalid.
    """
    metadata = {
        "about": about,
        "flag": flag,
        "short": short,
        "env": env,
        "repeated": repeated,
        "may_be_empty": may_be_empty,
        "maximum": maximum,
        "check": check,
    }
    return dataclasses.field(default=default, metadata=metadata)


def section(default: Any, title: str = "") -> Any:
    """Return a dataclass field for a section. `default` is a frozen dataclass of settings or of subsections.

    `title` is the heading of the section in the help text and the documentation.
    """
    return dataclasses.field(default=default, metadata={"title": title})


class DeclaredSetting(NamedTuple):
    """A setting: its path of field names, the title of its section, and the arguments of `setting`."""

    path: tuple[str, ...]
    title: str
    default: Any
    about: str
    flag: str
    short: str
    env: str
    repeated: bool
    may_be_empty: bool
    maximum: float | None
    check: Check | None


def declared(sections: Any, path: tuple[str, ...] = (), title: str = "") -> Iterator[DeclaredSetting]:
    """Yield every setting of a section and its subsections, in declaration order."""
    for f in dataclasses.fields(sections):
        if dataclasses.is_dataclass(f.default):
            yield from declared(f.default, (*path, f.name), f.metadata["title"] or title)
        else:
            yield DeclaredSetting((*path, f.name), title, f.default, **f.metadata)
