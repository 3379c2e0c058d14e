"""Loggers: a file, Envoy's access log service for requests or connections, and OpenTelemetry."""

from __future__ import annotations

from typing import Any

import msgspec
from envoy.config.core.v3 import config_source_pb2, grpc_service_pb2
from envoy.extensions.access_loggers.file.v3 import file_pb2
from envoy.extensions.access_loggers.grpc.v3 import als_pb2
from envoy.extensions.access_loggers.open_telemetry.v3 import logs_service_pb2
from google.protobuf import any_pb2
from opentelemetry.proto.common.v1 import common_pb2

from pilot.envoy.access_log.log_format import DEFAULT_TEXT, AccessLogFormat, build_formatters, build_log_format
from pilot.envoy.well_known_types import pack

FILE_NAME = "envoy.access_loggers.file"
HTTP_GRPC_NAME = "envoy.access_loggers.http_grpc"
TCP_GRPC_NAME = "envoy.tcp_grpc_access_log"
OPEN_TELEMETRY_NAME = "envoy.access_loggers.open_telemetry"
PEER_STATE = ("upstream_peer", "downstream_peer")
LEGACY_PEER_STATE = ("wasm.upstream_peer", "wasm.upstream_peer_id", "wasm.downstream_peer", "wasm.downstream_peer_id")


class FileLogger(msgspec.Struct, frozen=True, cache_hash=True):
    """A logger that writes entries to a file."""

    path: str
    format: AccessLogFormat = AccessLogFormat()

    name = FILE_NAME

    def build(self) -> any_pb2.Any:
        return pack(file_pb2.FileAccessLog(path=self.path, log_format=build_log_format(self.format)))


class GrpcLogger(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """A logger that sends entries over gRPC to `cluster`, with the log name `log_name`.

    `states` are the keys of the filter state objects to include.
    """

    cluster: str
    log_name: str
    authority: str = ""
    states: tuple[str, ...] = PEER_STATE

    def common(self) -> als_pb2.CommonGrpcAccessLogConfig:
        """Return the configuration that all gRPC loggers share."""
        envoy_grpc = grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=self.cluster, authority=self.authority)
        return als_pb2.CommonGrpcAccessLogConfig(
            log_name=self.log_name,
            grpc_service=grpc_service_pb2.GrpcService(envoy_grpc=envoy_grpc),
            transport_api_version=config_source_pb2.ApiVersion.V3,
            filter_state_objects_to_log=self.states,
        )


class RequestLogger(GrpcLogger, frozen=True, cache_hash=True, kw_only=True):
    """A logger that sends HTTP requests to Envoy's access log service, with additional headers and trailers."""

    request_headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()
    response_trailers: tuple[str, ...] = ()

    name = HTTP_GRPC_NAME

    def build(self) -> any_pb2.Any:
        return pack(
            als_pb2.HttpGrpcAccessLogConfig(
                common_config=self.common(),
                additional_request_headers_to_log=self.request_headers,
                additional_response_headers_to_log=self.response_headers,
                additional_response_trailers_to_log=self.response_trailers,
            )
        )


class ConnectionLogger(GrpcLogger, frozen=True, cache_hash=True, kw_only=True):
    """A logger that sends TCP connections to Envoy's access log service."""

    name = TCP_GRPC_NAME

    def build(self) -> any_pb2.Any:
        return pack(als_pb2.TcpGrpcAccessLogConfig(common_config=self.common()))


class OpenTelemetryLogger(GrpcLogger, frozen=True, cache_hash=True, kw_only=True):
    """A logger that sends entries to an OpenTelemetry collector.

    `text` is the format of the body, or "" for the default format. The values of `attributes` are formats too.
    """

    text: str = ""
    attributes: tuple[tuple[str, str], ...] = ()

    name = OPEN_TELEMETRY_NAME

    def build(self) -> any_pb2.Any:
        body = self.text or DEFAULT_TEXT
        attributes = [common_pb2.KeyValue(key=key, value=_text(value)) for key, value in self.attributes]
        return pack(
            logs_service_pb2.OpenTelemetryAccessLogConfig(
                common_config=self.common(),
                disable_builtin_labels=True,
                body=_text(body),
                attributes=common_pb2.KeyValueList(values=attributes) if attributes else None,
                formatters=build_formatters(body, *(value for _, value in self.attributes)),
            )
        )


Logger = FileLogger | RequestLogger | ConnectionLogger | OpenTelemetryLogger


def _text(value: str) -> Any:
    return common_pb2.AnyValue(string_value=value)
