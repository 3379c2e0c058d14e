"""The reader of a kind reads the kind's table, and the objects that follow from other kinds."""

from __future__ import annotations

from typing import TypeVar

from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import Collection

S = TypeVar("S")
KindView = Collection[ObjectKey, Object[S]]
"""Objects of a kind of configuration by key, index and bucket; of two objects of one key the one that a user wrote counts."""
RegistryView = Collection[RegistryKey, Object[S]]
"""Likewise for what runs in the clusters: the objects of every cluster."""
