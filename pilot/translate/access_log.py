"""Builds access logs as the mesh config asks for them: a file, and Envoy's access log service.

https://istio.io/latest/docs/tasks/observability/logs/access-log/ has the default format.
"""
from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import msgspec
from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import config_source_pb2, extension_pb2, grpc_service_pb2, substitution_format_string_pb2
from envoy.extensions.access_loggers.file.v3 import file_pb2
from envoy.extensions.access_loggers.grpc.v3 import als_pb2
from envoy.extensions.formatter.req_without_query.v3 import req_without_query_pb2
from google.protobuf import json_format, struct_pb2

from pilot.model.config.mesh_config import MeshConfig
from pilot.translate.typed import pack

FILE_NAME = "envoy.access_loggers.file"
HTTP_GRPC_NAME = "envoy.access_loggers.http_grpc"
TCP_GRPC_NAME = "envoy.tcp_grpc_access_log"
SERVICE_CLUSTER = "envoy_accesslog_service"  # in the proxy's bootstrap
NO_ROUTE = "NR"  # on a listener: no filter chain matched, so that no filter logs the connection
PEER_STATE = ("upstream_peer", "downstream_peer", "wasm.upstream_peer", "wasm.upstream_peer_id", "wasm.downstream_peer", "wasm.downstream_peer_id")

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
_TEXT = (
    '[{start_time}] "{method} {path} {protocol}" {response_code} {response_flags} {response_code_details} '
    '{connection_termination_details} "{upstream_transport_failure_reason}" {bytes_received} {bytes_sent} {duration} '
    '{upstream_service_time} "{x_forwarded_for}" "{user_agent}" "{request_id}" "{authority}" "{upstream_host}" {upstream_cluster} '
    "{upstream_local_address} {downstream_local_address} {downstream_remote_address} {requested_server_name} {route_name}\n"
).format_map(_FIELDS)


class AccessLogs(msgspec.Struct, frozen=True, cache_hash=True):
    """Says what is logged. `file`: "" for none; `format`: "" for the default; `service`: to the access log service too."""

    file: str = ""
    format: str = ""
    json: bool = False
    service: bool = False
    of_listeners: bool = True


def access_logs_of(mesh: MeshConfig) -> AccessLogs:
    """Returns what the mesh config asks for."""
    return AccessLogs(
        file=mesh.access_log_file,
        format=mesh.access_log_format,
        json=mesh.access_log_encoding == "JSON",
        service=mesh.enable_envoy_access_log_service,
        of_listeners=not mesh.disable_envoy_listener_log,
    )


@lru_cache(maxsize=64)
def build_http_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Returns the logs of an HTTP connection manager."""
    return _build(logs, HTTP_GRPC_NAME, "http_envoy_accesslog")


@lru_cache(maxsize=64)
def build_tcp_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Returns the logs of a TCP proxy."""
    return _build(logs, TCP_GRPC_NAME, "tcp_envoy_accesslog")


@lru_cache(maxsize=64)
def build_listener_access_logs(logs: AccessLogs) -> tuple[accesslog_pb2.AccessLog, ...]:
    """Returns the logs of a listener: only connections that reach no filter chain."""
    if not logs.of_listeners:
        return ()
    unmatched = accesslog_pb2.AccessLogFilter(response_flag_filter=accesslog_pb2.ResponseFlagFilter(flags=[NO_ROUTE]))
    return _build(logs, TCP_GRPC_NAME, "listener_envoy_accesslog", unmatched)


def _build(
    logs: AccessLogs, service_name: str, log_name: str, only: accesslog_pb2.AccessLogFilter | None = None
) -> tuple[accesslog_pb2.AccessLog, ...]:
    built = []
    if logs.file:
        built.append(accesslog_pb2.AccessLog(name=FILE_NAME, filter=only, typed_config=pack(_build_file(logs))))
    if logs.service:
        config = als_pb2.HttpGrpcAccessLogConfig if service_name == HTTP_GRPC_NAME else als_pb2.TcpGrpcAccessLogConfig
        shared = als_pb2.CommonGrpcAccessLogConfig(
            log_name=log_name,
            grpc_service=grpc_service_pb2.GrpcService(envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=SERVICE_CLUSTER)),
            transport_api_version=config_source_pb2.ApiVersion.V3,
            filter_state_objects_to_log=PEER_STATE,
        )
        built.append(accesslog_pb2.AccessLog(name=service_name, filter=only, typed_config=pack(config(common_config=shared))))
    return tuple(built)


def _build_file(logs: AccessLogs) -> file_pb2.FileAccessLog:
    formatted = substitution_format_string_pb2.SubstitutionFormatString()
    if logs.json:
        formatted.json_format.CopyFrom(_json_format(logs.format))
        formatted.json_format_options.CopyFrom(substitution_format_string_pb2.JsonFormatOptions(sort_properties=False))
        without_query = any("%REQ_WITHOUT_QUERY" in v.string_value for v in formatted.json_format.fields.values())
    else:
        text = logs.format or _TEXT
        formatted.text_format_source.inline_string = text if text.endswith("\n") else text + "\n"
        without_query = "%REQ_WITHOUT_QUERY" in text
    if without_query:
        formatter = extension_pb2.TypedExtensionConfig(
            name="envoy.formatter.req_without_query", typed_config=pack(req_without_query_pb2.ReqWithoutQuery())
        )
        formatted.formatters.append(formatter)
    return file_pb2.FileAccessLog(path=logs.file, log_format=formatted)


def _json_format(text: str) -> struct_pb2.Struct:
    """Returns the fields of the user's text; the default where that is no JSON object."""
    parsed: Any = _FIELDS
    if text:
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = _FIELDS
    return json_format.ParseDict(parsed if isinstance(parsed, dict) else _FIELDS, struct_pb2.Struct())
