"""The incremental core: tracked reads, early cutoff, watched roots. Standard library only."""

from pilot.derive.collection import Collection
from pilot.derive.derived import Derived, Gather, Lookup, derived, hub
from pilot.derive.graph import UNSET, CycleError, Database, Node
from pilot.derive.table import Index, Table

__all__ = [
    "UNSET",
    "Collection",
    "CycleError",
    "Database",
    "Derived",
    "Gather",
    "Index",
    "Lookup",
    "Node",
    "Table",
    "derived",
    "hub",
]
