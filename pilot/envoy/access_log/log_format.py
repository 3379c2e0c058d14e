"""Formats of access logs: a line of text, or JSON.

The default format is at https://istio.io/latest/docs/tasks/observability/logs/access-log/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from envoy.config.core.v3 import extension_pb2, substitution_format_string_pb2
from envoy.extensions.formatter.req_without_query.v3 import req_without_query_pb2
from google.protobuf import json_format, struct_pb2

from pilot.envoy.well_known_types import pack

_WITHOUT_QUERY = "%REQ_WITHOUT_QUERY"
_FORMATTER = extension_pb2.TypedExtensionConfig(
    name="envoy.formatter.req_without_query", typed_config=pack(req_without_query_pb2.ReqWithoutQuery())
)
_FIELDS = {
    "start_time": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
    "protocol": "%PROTOCOL%",
    "response_code": "%RESPONSE_CODE%",
    "response_flags": "%RESPONSE_FLAGS%",
    "response_code_details": "%RESPONSE_CODE_DETAILS%",
    "connection_termination_details": "%CONNECTION_TERMINATION_DETAILS%",
    "upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
    "bytes_received": "%BYTES_RECEIVED%",
    "bytes_sent": "%BYTES_SENT%",
    "duration": "%DURATION%",
    "upstream_service_time": "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
    "x_forwarded_for": "%REQ(X-FORWARDED-FOR)%",
    "user_agent": "%REQ(USER-AGENT)%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "authority": "%REQ(:AUTHORITY)%",
    "upstream_host": "%UPSTREAM_HOST%",
    "upstream_cluster": "%UPSTREAM_CLUSTER_RAW%",
    "upstream_local_address": "%UPSTREAM_LOCAL_ADDRESS%",
    "downstream_local_address": "%DOWNSTREAM_LOCAL_ADDRESS%",
    "downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%",
    "requested_server_name": "%REQUESTED_SERVER_NAME%",
    "route_name": "%ROUTE_NAME%",
}
DEFAULT_TEXT = (
    '[{start_time}] "{method} {path} {protocol}" {response_code} {response_flags} {response_code_details} '
    '{connection_termination_details} "{upstream_transport_failure_reason}" {bytes_received} {bytes_sent} {duration} '
    '{upstream_service_time} "{x_forwarded_for}" "{user_agent}" "{request_id}" "{authority}" "{upstream_host}" '
    "{upstream_cluster} {upstream_local_address} {downstream_local_address} {downstream_remote_address} "
    "{requested_server_name} {route_name}\n"
).format_map(_FIELDS)
DEFAULT_FIELDS = msgspec.json.encode(_FIELDS).decode()


class AccessLogFormat(msgspec.Struct, frozen=True, cache_hash=True):
    """The format of an access log: the text in `text`, or the serialized JSON object in `fields`.

    If neither is set, the default text format applies. `omit_empty` omits missing values instead of logging a dash.
    """

    text: str = ""
    fields: str = ""
    omit_empty: bool = False


def json_log_format(fields: Mapping[str, Any] | None, omit_empty: bool = False) -> AccessLogFormat:
    """Return the JSON format with these fields, or with the default fields if there are none."""
    return AccessLogFormat(
        fields=msgspec.json.encode(fields).decode() if fields else DEFAULT_FIELDS, omit_empty=omit_empty
    )


def build_log_format(log_format: AccessLogFormat) -> substitution_format_string_pb2.SubstitutionFormatString:
    """Return the format as a message. A text format always ends with a line break."""
    message = substitution_format_string_pb2.SubstitutionFormatString(omit_empty_values=log_format.omit_empty)
    if log_format.fields:
        fields = json_format.ParseDict(msgspec.json.decode(log_format.fields), struct_pb2.Struct())
        message.json_format.CopyFrom(fields)
        message.json_format_options.CopyFrom(substitution_format_string_pb2.JsonFormatOptions(sort_properties=False))
        message.formatters.extend(build_formatters(*(v.string_value for v in fields.fields.values())))
    else:
        text = log_format.text or DEFAULT_TEXT
        message.text_format_source.inline_string = text if text.endswith("\n") else text + "\n"
        message.formatters.extend(build_formatters(text))
    return message


def build_formatters(*texts: str) -> list[extension_pb2.TypedExtensionConfig]:
    """Return the formatter extensions that the command operators in these formats require."""
    return [_FORMATTER] if any(_WITHOUT_QUERY in text for text in texts) else []
