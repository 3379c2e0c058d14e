"""Filter state: values that a filter stores under a key for a connection or request, and that later filters read.

A value that is shared with upstreams is also visible to the internal listener to which a cluster connects. Hashable
values are part of the connection pool key, so that no request uses a tunnel that was opened for another client.
"""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2, extension_pb2, substitution_format_string_pb2
from envoy.extensions.filters.common.set_filter_state.v3 import value_pb2
from envoy.extensions.formatter.cel.v3 import cel_pb2

from pilot.envoy.well_known_types import pack

Value = value_pb2.FilterStateValue
Sharing = value_pb2.FilterStateValue.SharedWithUpstream
ONCE, TRANSITIVE = Value.ONCE, Value.TRANSITIVE

DESTINATION = "envoy.filters.listener.original_dst.local_ip"
SOURCE = "envoy.filters.listener.original_dst.remote_ip"
AUTHORITY = "io.istio.connect_authority"
REQUEST_SOURCE = "io.istio.source"
PEER_PRINCIPAL = "io.istio.peer_principal"
LOCAL_PRINCIPAL = "io.istio.local_principal"
HBONE_TARGET = "istio.double_hbone.hbone_target_address"
TRANSPORT_DESTINATION = "envoy.network.transport_socket.original_dst_address"
_CEL = extension_pb2.TypedExtensionConfig(name="envoy.formatter.cel", typed_config=pack(cel_pb2.Cel()))


def hashable(istio: bool) -> str:
    """Return the type name of hashable strings. Istio's build of Envoy (`istio`) uses a different name."""
    return "istio.hashable_string" if istio else "envoy.hashable_string"


def build_value(
    key: str, text: str, kind: str = "", shared: int | None = None, cel: bool = False
) -> value_pb2.FilterStateValue:
    """Return a filter state value. `text` is in Envoy's format string syntax.

    `kind` is the type, if the key does not imply it. `cel` enables CEL expressions in `text`.
    """
    source = base_pb2.DataSource(inline_string=text)
    format_string = substitution_format_string_pb2.SubstitutionFormatString(
        text_format_source=source, formatters=[_CEL] if cel else []
    )
    value = Value(object_key=key, factory_key=kind, format_string=format_string)
    if shared is not None:
        value.shared_with_upstream = shared
    return value
