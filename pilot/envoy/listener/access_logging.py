"""Derives the access logs of one side of a proxy: as Telemetries say, else as the mesh config does."""

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
_BUILT_IN = "envoy"  # the provider that writes as the mesh config says, where it has no format of its own


@hub
def mesh_access_logs(db: Mesh) -> AccessLogs:
    """Returns what the mesh config asks for by itself."""
    mesh = mesh_config(db)
    file = (FilteredLogger(FileLogger(mesh.access_log_file, _mesh_format(mesh))),) if mesh.access_log_file else ()
    return AccessLogs(
        file, service=mesh.enable_envoy_access_log_service, logs_listeners=not mesh.disable_envoy_listener_log
    )


@hub
def mesh_log_format(db: Mesh) -> AccessLogFormat:
    """Returns the format of lines that the mesh config says."""
    return _mesh_format(mesh_config(db))


def _mesh_format(mesh: MeshConfig) -> AccessLogFormat:
    """Returns the default format where Envoy would not take the one that is said."""
    said = mesh.access_log_format
    if mesh.access_log_encoding == "JSON":
        fields = decode_log_fields(said) if said else None
        return json_log_format(fields if fields is not None and not any(check_log_fields("", fields)) else None)
    return AccessLogFormat("" if any(check_log_format("", said)) else said)


def access_logs(db: Mesh, listening: ListeningFacet) -> AccessLogs:
    """Returns what one side of a proxy logs. No node of its own."""
    return merged_access_logs(db, listening)


@derived
def merged_access_logs(db: Mesh, listening: ListeningFacet) -> AccessLogs:
    """Returns the logs of the Telemetries that apply; where no provider of theirs is a logger, those of the mesh config."""
    of_mesh = mesh_access_logs(db)
    found = [(rule, made) for rule in listening.telemetry.logs if (made := logger(db, rule.provider)) is not None]
    if not found:
        return of_mesh
    return AccessLogs(tuple(_enabled(found, listening.lacks)), logs_listeners=of_mesh.logs_listeners)


def _enabled(found: Iterable[tuple[LogRule, Logger]], lacks: frozenset[str]) -> Iterable[FilteredLogger]:
    for rule, made in found:
        if not rule.disabled and made.name not in lacks and not (rule.expression and CEL_FILTER in lacks):
            yield FilteredLogger(made, rule.expression)


@derived
def logger(db: Mesh, name: str) -> Logger | None:
    """Returns the logger of a provider; None where it is no logger, or where its service is not known."""
    provider = telemetry_provider(db, name)
    if not isinstance(provider, ExtensionProvider):
        return None
    if (file := provider.envoy_file_access_log) is not None:
        return _file_logger(db, provider.name, file)
    said = provider.envoy_http_als or provider.envoy_tcp_als or provider.envoy_otel_als
    port = provider_port(db, said.service, said.port) if said is not None else None
    return _grpc_logger(said, port) if said is not None and port is not None else None


def _file_logger(db: Mesh, name: str, said: EnvoyFileAccessLogProvider) -> FileLogger:
    if name == _BUILT_IN and said.log_format is None and not said.omit_empty_values:
        return FileLogger(said.path, mesh_log_format(db))
    form = said.log_format
    if form is not None and form.text is None:
        return FileLogger(said.path or STDOUT, json_log_format(form.labels, said.omit_empty_values))
    return FileLogger(
        said.path or STDOUT,
        AccessLogFormat((form.text or "") if form is not None else "", omit_empty=said.omit_empty_values),
    )


def _grpc_logger(
    said: EnvoyHttpGrpcV3LogProvider | EnvoyTcpGrpcV3LogProvider | EnvoyOpenTelemetryLogProvider, port: ProviderPort
) -> Logger:
    cluster, host = names.outbound_cluster(port.port, "", port.hostname), port.hostname
    if isinstance(said, EnvoyOpenTelemetryLogProvider):
        form = said.log_format
        return OpenTelemetryLogger(
            cluster=cluster,
            authority=host,
            log_name=said.log_name or "otel_envoy_accesslog",
            states=PEER_STATE + LEGACY_PEER_STATE,
            text=form.text if form is not None else "",
            attributes=tuple(sorted(form.labels.items())) if form is not None and form.labels else (),
        )
    states = said.filter_state_objects_to_log or PEER_STATE
    if isinstance(said, EnvoyTcpGrpcV3LogProvider):
        return ConnectionLogger(
            cluster=cluster, authority=host, log_name=said.log_name or "tcp_envoy_accesslog", states=states
        )
    return RequestLogger(
        cluster=cluster,
        authority=host,
        log_name=said.log_name or "http_envoy_accesslog",
        states=states,
        request_headers=said.additional_request_headers_to_log,
        response_headers=said.additional_response_headers_to_log,
        response_trailers=said.additional_response_trailers_to_log,
    )
