"""The incremental core: derived functions, whose values are recomputed only if something that they read has changed.

This package uses only the standard library.
"""

from pilot.derive.collection import Collection
from pilot.derive.derived import (
    Derived,
    Gather,
    Lookup,
    derived,
    derived_in_steps,
    hub,
    hub_in_steps,
    run_steps,
    updated,
)
from pilot.derive.graph import UNSET, Change, CycleError, Database, Node, Paused, Steps
from pilot.derive.table import Index, Table

__all__ = [
    "UNSET",
    "Change",
    "Collection",
    "CycleError",
    "Database",
    "Derived",
    "Gather",
    "Index",
    "Lookup",
    "Node",
    "Paused",
    "Steps",
    "Table",
    "derived",
    "derived_in_steps",
    "hub",
    "hub_in_steps",
    "run_steps",
    "updated",
]
