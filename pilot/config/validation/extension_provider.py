"""Validation of extension providers for traces and access logs.

An invalid provider is not used; the rest of the mesh config takes effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from pilot.config.base import json_name
from pilot.config.mesh.extension_provider import (
    DynatraceApi,
    EnvoyFileAccessLogProvider,
    EnvoyHttpGrpcV3LogProvider,
    EnvoyOpenTelemetryLogProvider,
    EnvoyTcpGrpcV3LogProvider,
    ExtensionProvider,
    HttpHeader,
    HttpService,
    OpenTelemetryTracingProvider,
    ZipkinTracingProvider,
)
from pilot.config.problem import Problem, Problems, below, each, warning
from pilot.config.validation import rules
from pilot.config.validation.traffic.headers import check_format
from pilot.lib.duration import Duration

_WITH_SERVICE = (
    "zipkin",
    "datadog",
    "skywalking",
    "opentelemetry",
    "envoy_http_als",
    "envoy_tcp_als",
    "envoy_otel_als",
)
_TOKEN = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+", re.ASCII)
_PATH = re.compile(r"[\x21-\x7e]*", re.ASCII)
_TEXT = re.compile(r"[^\x00\r\n]*")
_WITHOUT_QUERY = "%REQ_WITHOUT_QUERY("


def validate_provider(provider: ExtensionProvider) -> Problems:
    """Yield the problems of a provider, all of which are warnings. External authorizers are validated elsewhere."""
    if not provider.name:
        yield warning("missing-field", "name", "a name is required, because Telemetries refer to providers by name")
    for field in (*_WITH_SERVICE, "envoy_file_access_log"):
        if (settings := getattr(provider, field)) is not None:
            name = json_name(field)
            if field in _WITH_SERVICE:
                yield from below(name, _check_service(settings.service, settings.port))
            yield from below(name, _RULES.get(field, _accept)(settings))


def find_fault(provider: ExtensionProvider) -> str:
    """Return the first problem of a provider as a string, or "" if there is none."""
    return next((f"{p.path}: {p.message}" for p in validate_provider(provider)), "")


def _accept(_: Any) -> Iterator[Problem]:
    return iter(())


def _check_service(service: str, port: int) -> Problems:
    namespace, slash, host = service.rpartition("/")
    if not service or (slash and not namespace) or not host or "/" in namespace:
        yield warning("bad-host", "service", f"{service!r}: expected host or namespace/host")
    if not port:
        yield warning("bad-port", "port", "required: set it to the number of a port of the service")
    elif not 1 <= port <= 65535:
        yield warning("bad-port", "port", f"{port} is not a valid port: must be between 1 and 65535")


def _check_timeout(timeout: Duration | None) -> Problems:
    if timeout is not None and timeout <= 0:
        yield warning("bad-duration", "timeout", f"{timeout}: must be greater than 0s")


def _check_header(header: HttpHeader) -> Problems:
    if not _TOKEN.fullmatch(header.name):
        yield warning("bad-header-name", "name", f"{header.name!r} is not a valid header name")
    if header.value is not None and not _TEXT.fullmatch(header.value):
        yield warning("bad-header-value", "value", "line breaks are not allowed")
    if header.env_name is not None and not header.env_name:
        yield warning("missing-field", "envName", "a variable name is required")


def _check_path(path: str, text: str) -> rules.Findings:
    return () if _PATH.fullmatch(text) else (warning("bad-path", path, f"{text!r} is not a valid URL path"),)


# Tracers


def _check_zipkin(zipkin: ZipkinTracingProvider) -> Problems:
    if zipkin.path and not zipkin.path.startswith("/"):
        yield warning("bad-path", "path", f"{zipkin.path!r}: must begin with /")
    yield from _check_path("path", zipkin.path)
    yield from _check_timeout(zipkin.timeout)
    yield from each("headers", zipkin.headers, _check_header)


def _check_http(http: HttpService) -> Problems:
    yield from _check_path("path", http.path)
    yield from _check_timeout(http.timeout)
    yield from each("headers", http.headers, _check_header)


def _check_open_telemetry(provider: OpenTelemetryTracingProvider) -> Problems:
    if provider.http is not None:
        yield from below("http", _check_http(provider.http))
        if provider.grpc is not None:
            yield warning("exclusive-fields", "grpc", "only one of http and grpc may be set")
    if provider.grpc is not None:
        yield from below("grpc", _check_timeout(provider.grpc.timeout))
        yield from each("grpc.initialMetadata", provider.grpc.initial_metadata, _check_header)
    if (sampler := provider.dynatrace_sampler) is not None:
        if sampler.http_service is None and provider.http is None:
            yield warning(
                "missing-field",
                "dynatraceSampler.httpService",
                "required unless the provider has http settings",
            )
        elif sampler.http_service is not None:
            yield from below("dynatraceSampler.httpService", _check_dynatrace(sampler.http_service))


def _check_dynatrace(api: DynatraceApi) -> Problems:
    yield from _check_service(api.service, api.port)
    if api.http is None:
        yield warning("missing-field", "http", "a path is required")
    else:
        yield from below("http", _check_http(api.http))


# Loggers


def check_log_format(path: str, text: str) -> Problems:
    """Yield a warning if Envoy cannot parse an access log format."""
    for problem in check_format(path, text.replace(_WITHOUT_QUERY, "%REQ(")):
        yield warning(problem.code, path, problem.message)


def check_log_fields(path: str, fields: Mapping[str, Any]) -> Problems:
    """Yield a warning for each value that is not a valid access log format, including values in nested objects."""
    for name, value in fields.items():
        yield from _check_value(f"{path}[{name}]", value)


def _check_value(path: str, value: Any) -> Problems:
    if isinstance(value, str):
        yield from check_log_format(path, value)
    elif isinstance(value, Mapping):
        yield from check_log_fields(path, value)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _check_value(f"{path}[{index}]", item)


def decode_log_fields(text: str) -> dict[str, Any] | None:
    """Return the fields of an access log format, or None if the format is not a JSON object."""
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _check_file(provider: EnvoyFileAccessLogProvider) -> Problems:
    if (form := provider.log_format) is not None:
        yield from check_log_format("logFormat.text", form.text or "")
        yield from check_log_fields("logFormat.labels", form.labels or {})


def _check_names(field: str, names: tuple[str, ...]) -> Problems:
    for index, name in enumerate(names):
        if not _TOKEN.fullmatch(name):
            yield warning("bad-header-name", f"{field}[{index}]", f"{name!r} is not a valid header name")


def _check_http_service_log(provider: EnvoyHttpGrpcV3LogProvider) -> Problems:
    yield from _check_states(provider)
    yield from _check_names("additionalRequestHeadersToLog", provider.additional_request_headers_to_log)
    yield from _check_names("additionalResponseHeadersToLog", provider.additional_response_headers_to_log)
    yield from _check_names("additionalResponseTrailersToLog", provider.additional_response_trailers_to_log)


def _check_states(provider: EnvoyHttpGrpcV3LogProvider | EnvoyTcpGrpcV3LogProvider) -> Problems:
    for index, name in enumerate(provider.filter_state_objects_to_log):
        if not name:
            yield warning("missing-field", f"filterStateObjectsToLog[{index}]", "a name is required")


def _check_open_telemetry_log(provider: EnvoyOpenTelemetryLogProvider) -> Problems:
    if (form := provider.log_format) is not None:
        yield from check_log_format("logFormat.text", form.text)
        for name, value in (form.labels or {}).items():
            if isinstance(value, str):
                yield from check_log_format(f"logFormat.labels[{name}]", value)
            else:
                yield warning("bad-format", f"logFormat.labels[{name}]", "must be a string")


_RULES: Mapping[str, Callable[[Any], Iterator[Problem]]] = {
    "zipkin": _check_zipkin,
    "opentelemetry": _check_open_telemetry,
    "envoy_file_access_log": _check_file,
    "envoy_http_als": _check_http_service_log,
    "envoy_tcp_als": _check_states,
    "envoy_otel_als": _check_open_telemetry_log,
}
