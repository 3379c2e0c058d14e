"""Type URLs of configuration objects over xDS, and the messages of their specs."""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import struct_pb2

from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GroupKind

CORE = "core"
"""The group in type URLs of kinds without a group."""
MESH_CONFIG = f"{CORE}/v1alpha1/MeshConfig"
"""The type URL of the mesh config, which is sent as its own message."""


class ObjectType(NamedTuple):
    """A version of a kind. `group` is "" for kinds without a group."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        """Return the type URL."""
        return f"{self.group or CORE}/{self.version}/{self.kind}"

    @property
    def group_kind(self) -> GroupKind:
        """Return the kind."""
        return GroupKind(self.group, self.kind)

    @property
    def api_version(self) -> str:
        """Return the apiVersion of the objects in YAML."""
        return f"{self.group}/{self.version}" if self.group else self.version


def parse_object_type(type_url: str) -> ObjectType | None:
    """Return the kind and version in a type URL, or None for the type URL of a message, such as Envoy's."""
    parts = type_url.split("/")
    if len(parts) != 3 or not all(parts):
        return None
    group, version, kind = parts
    return ObjectType("" if group == CORE else group, version, kind)


def spec_message(object_type: ObjectType) -> type[Any]:
    """Return the message of a spec, which is google.protobuf.Struct for unknown kinds."""
    kind = CATALOGUE.find(object_type.group_kind)
    return kind.message if kind is not None else struct_pb2.Struct
