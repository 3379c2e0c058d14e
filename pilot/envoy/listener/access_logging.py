"""The access logs of one side of a proxy. Telemetries configure them. The default comes from the mesh config."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.mesh.extension_provider import (
    EnvoyFileAccessLogProvider,
    EnvoyHttpGrpcV3LogProvider,
    EnvoyOpenTelemetryLogProvider,
    EnvoyTcpGrpcV3LogProvider,
    ExtensionProvider,
)
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.validation.extension_provider import check_log_fields, check_log_format, decode_log_fields
from pilot.derive import derived, hub
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import AccessLogs, FilteredLogger
from pilot.envoy.access_log.log_format import AccessLogFormat, json_log_format
from pilot.envoy.access_log.loggers import (
    LEGACY_PEER_STATE,
    PEER_STATE,
    ConnectionLogger,
    FileLogger,
    Logger,
    OpenTelemetryLogger,
    RequestLogger,
)
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.model.telemetry_features import CEL_FILTER
from pilot.mesh.model.telemetry_rules import LogRule
from pilot.mesh.registry.mesh_services import ProviderPort
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.telemetry.providers import provider_port, telemetry_provider

STDOUT = "/dev/stdout"
_BUILT_IN = "envoy"  # the provider that uses the mesh config's format unless it has its own


@hub
def mesh_access_logs(db: Mesh) -> AccessLogs:
    """Return the access logs that the mesh config configures."""
    mesh = mesh_config(db)
    file = (FilteredLogger(FileLogger(mesh.access_log_file, _mesh_format(mesh))),) if mesh.access_log_file else ()
    return AccessLogs(
        file, service=mesh.enable_envoy_access_log_service, logs_listeners=not mesh.disable_envoy_listener_log
    )


@hub
def mesh_log_format(db: Mesh) -> AccessLogFormat:
    """Return the access log format of the mesh config."""
    return _mesh_format(mesh_config(db))


def _mesh_format(mesh: MeshConfig) -> AccessLogFormat:
    """Return the access log format of the mesh config, or the default format if Envoy would reject it."""
    text = mesh.access_log_format
    if mesh.access_log_encoding == "JSON":
        fields = decode_log_fields(text) if text else None
        return json_log_format(fields if fields is not None and not any(check_log_fields("", fields)) else None)
    return AccessLogFormat("" if any(check_log_format("", text)) else text)


def access_logs(db: Mesh, listening: ListeningFacet) -> AccessLogs:
    """Return the access logs of one side of a proxy. Not memoised."""
    return merged_access_logs(db, listening)


@derived
def merged_access_logs(db: Mesh, listening: ListeningFacet) -> AccessLogs:
    """Return the access logs that the applicable Telemetries configure.

    If none of their providers is a logger, the access logs of the mesh config apply.
    """
    mesh_logs = mesh_access_logs(db)
    loggers = [
        (rule, provider_logger)
        for rule in listening.telemetry.logs
        if (provider_logger := logger(db, rule.provider)) is not None
    ]
    if not loggers:
        return mesh_logs
    return AccessLogs(
        tuple(_enabled(loggers, listening.unsupported_telemetry)), logs_listeners=mesh_logs.logs_listeners
    )


def _enabled(loggers: Iterable[tuple[LogRule, Logger]], unsupported: frozenset[str]) -> Iterable[FilteredLogger]:
    for rule, provider_logger in loggers:
        if (
            not rule.disabled
            and provider_logger.name not in unsupported
            and not (rule.expression and CEL_FILTER in unsupported)
        ):
            yield FilteredLogger(provider_logger, rule.expression)


@derived
def logger(db: Mesh, name: str) -> Logger | None:
    """Return the logger of a provider, or None if the provider is not a logger or its service is unknown."""
    provider = telemetry_provider(db, name)
    if not isinstance(provider, ExtensionProvider):
        return None
    if (file := provider.envoy_file_access_log) is not None:
        return _file_logger(db, provider.name, file)
    settings = provider.envoy_http_als or provider.envoy_tcp_als or provider.envoy_otel_als
    port = provider_port(db, settings.service, settings.port) if settings is not None else None
    return _grpc_logger(settings, port) if settings is not None and port is not None else None


def _file_logger(db: Mesh, name: str, settings: EnvoyFileAccessLogProvider) -> FileLogger:
    if name == _BUILT_IN and settings.log_format is None and not settings.omit_empty_values:
        return FileLogger(settings.path, mesh_log_format(db))
    log_format = settings.log_format
    if log_format is not None and log_format.text is None:
        return FileLogger(settings.path or STDOUT, json_log_format(log_format.labels, settings.omit_empty_values))
    return FileLogger(
        settings.path or STDOUT,
        AccessLogFormat(
            (log_format.text or "") if log_format is not None else "", omit_empty=settings.omit_empty_values
        ),
    )


def _grpc_logger(
    settings: EnvoyHttpGrpcV3LogProvider | EnvoyTcpGrpcV3LogProvider | EnvoyOpenTelemetryLogProvider, port: ProviderPort
) -> Logger:
    cluster, host = names.outbound_cluster(port.port, "", port.hostname), port.hostname
    if isinstance(settings, EnvoyOpenTelemetryLogProvider):
        log_format = settings.log_format
        return OpenTelemetryLogger(
            cluster=cluster,
            authority=host,
            log_name=settings.log_name or "otel_envoy_accesslog",
            states=PEER_STATE + LEGACY_PEER_STATE,
            text=log_format.text if log_format is not None else "",
            attributes=tuple(sorted(log_format.labels.items())) if log_format is not None and log_format.labels else (),
        )
    states = settings.filter_state_objects_to_log or PEER_STATE
    if isinstance(settings, EnvoyTcpGrpcV3LogProvider):
        return ConnectionLogger(
            cluster=cluster, authority=host, log_name=settings.log_name or "tcp_envoy_accesslog", states=states
        )
    return RequestLogger(
        cluster=cluster,
        authority=host,
        log_name=settings.log_name or "http_envoy_accesslog",
        states=states,
        request_headers=settings.additional_request_headers_to_log,
        response_headers=settings.additional_response_headers_to_log,
        response_trailers=settings.additional_response_trailers_to_log,
    )
