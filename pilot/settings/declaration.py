"""How a setting is declared, and how all declared settings are found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from pilot.lib.duration import Duration

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
) -> Any:
    """Returns a field of a section: its default, one sentence, the flag (and its letter) and the environment variable that set it.

    `repeated`: every use of the flag gives one value of a tuple, in which a comma is nothing special. `may_be_empty`: a variable that is set to
    an empty text says that, and not the default.
    """
    said = {
        "about": about,
        "flag": flag,
        "short": short,
        "env": env,
        "repeated": repeated,
        "may_be_empty": may_be_empty,
    }
    return dataclasses.field(default=default, metadata=said)


def section(default: Any, title: str = "") -> Any:
    """Returns a field that holds a section: a frozen dataclass of settings, or of further sections. `title` is its heading for users."""
    return dataclasses.field(default=default, metadata={"title": title})


class DeclaredSetting(NamedTuple):
    """One setting: the names of the fields that lead to it, the title of its section, and what `setting` was told."""

    path: tuple[str, ...]
    title: str
    default: Any
    about: str
    flag: str
    short: str
    env: str
    repeated: bool
    may_be_empty: bool


def declared(sections: Any, path: tuple[str, ...] = (), title: str = "") -> Iterator[DeclaredSetting]:
    """Yields every setting of a section and of the sections in it, in the order of their declarations."""
    for f in dataclasses.fields(sections):
        if dataclasses.is_dataclass(f.default):
            yield from declared(f.default, (*path, f.name), f.metadata["title"] or title)
        else:
            yield DeclaredSetting((*path, f.name), title, f.default, **f.metadata)
