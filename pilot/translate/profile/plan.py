"""What one proxy is to be sent, as references to shared derived groups of resources."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pilot.derive import Derived, Gather


class Group(NamedTuple):
    """A derived value `fn(db, *args)` that is a Mapping of Resource, shared by every proxy whose plan names it.

    The resources are the mapping's values; a resource's own name is what counts, not its key.
    """

    fn: Derived[Any, Any] | Gather[Any, Any, Any]
    args: tuple[Any, ...]


class Plan(NamedTuple):
    """The groups of each type URL, in order. Names do not repeat across the groups of a type; where they do, the first wins."""

    groups: Mapping[str, tuple[Group, ...]]
