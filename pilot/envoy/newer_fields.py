"""Fields of Envoy's API that are newer than the packaged messages, which carry them as unknown fields.

Older Envoys ignore them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from envoy.type.metadata.v3 import metadata_pb2
from google.protobuf import any_pb2, duration_pb2, json_format
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pilot.envoy.resource import length_delimited
from pilot.lib.protobuf.types import find_type


class NewerField(NamedTuple):
    """A field. `message` is the full name of the message that has it, and `name` its name in JSON.

    If `type` is None, the field is a Boolean.
    """

    message: str
    number: int
    name: str
    type: type[Message] | None

    def encode(self, value: Message | None = None) -> bytes:
        """Return the serialized field with a message, or with the value true."""
        if value is None:
            return bytes((self.number << 3, 1))
        return length_delimited(self.number, value.SerializeToString(deterministic=True))

    def show(self, data: Any) -> Any:
        """Return the JSON value of the content of an unknown field."""
        return bool(data) if self.type is None else json_format.MessageToDict(self.type.FromString(data))


BUDGET_INTERVAL = NewerField(
    "envoy.config.cluster.v3.CircuitBreakers.Thresholds.RetryBudget", 3, "budgetInterval", duration_pb2.Duration
)
SELECTED_HOST_KEY = NewerField(
    "envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
    2,
    "selectedHostKey",
    metadata_pb2.MetadataKey,
)
NO_CONTEXT_PROPAGATION = NewerField(
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.Tracing",
    13,
    "noContextPropagation",
    None,
)
_FIELDS = {
    (field.message, field.number): field for field in (BUDGET_INTERVAL, SELECTED_HOST_KEY, NO_CONTEXT_PROPAGATION)
}


def add_newer_fields(message: Message, plain: Any) -> None:
    """Add the newer fields of a message, and of those in it, to its JSON form."""
    if isinstance(message, any_pb2.Any):
        packed = find_type(message.type_url.rpartition("/")[2])
        if packed is not None and isinstance(plain, dict):
            add_newer_fields(packed.FromString(message.value), plain)
        return
    for unknown in UnknownFieldSet(message):  # type: ignore[attr-defined]
        field = _FIELDS.get((message.DESCRIPTOR.full_name, unknown.field_number))
        if field is not None:
            plain[field.name] = field.show(unknown.data)
    for descriptor, value in message.ListFields():
        inner = plain.get(descriptor.json_name) if isinstance(plain, dict) else None
        if descriptor.message_type is None or inner is None:
            continue
        if descriptor.message_type.GetOptions().map_entry:
            if descriptor.message_type.fields_by_name["value"].message_type is not None:
                for key in value:
                    add_newer_fields(value[key], inner.get(str(key)))
        elif descriptor.is_repeated:
            for item, shown in zip(value, inner, strict=False):
                add_newer_fields(item, shown)
        else:
            add_newer_fields(value, inner)
