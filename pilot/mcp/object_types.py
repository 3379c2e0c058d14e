"""Type URLs of configuration objects over xDS, and the message types of their specs."""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import struct_pb2

from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GroupKind

CORE = "core"
"""The group that type URLs use for kinds without a group."""
MESH_CONFIG = f"{CORE}/v1alpha1/MeshConfig"
"""The type URL of the mesh config, which is sent as a message of its own and not as the spec of an object."""


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
        """Return the apiVersion of the kind's objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


def parse_object_type(type_url: str) -> ObjectType | None:
    """Return the kind and version in a type URL, or None if the URL names a message type, such as one of Envoy's."""
    parts = type_url.split("/")
    if len(parts) != 3 or not all(parts):
        return None
    group, version, kind = parts
    return ObjectType("" if group == CORE else group, version, kind)


def spec_message(object_type: ObjectType) -> type[Any]:
    """Return the message type of a kind's spec. For unknown kinds it is google.protobuf.Struct."""
    kind = CATALOGUE.find(object_type.group_kind)
    return kind.message if kind is not None else struct_pb2.Struct
