"""Rules of the extension providers that spans and access logs go to.

A provider that breaks one is not used; the mesh config stays.
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
    """Yields the problems of a provider, each a warning; external authorizers have rules of their own."""
    if not provider.name:
        yield warning("missing-field", "name", "a name is required, because Telemetries refer to providers by name")
    for field in (*_WITH_SERVICE, "envoy_file_access_log"):
        if (said := getattr(provider, field)) is not None:
            name = json_name(field)
            if field in _WITH_SERVICE:
                yield from below(name, _check_service(said.service, said.port))
            yield from below(name, _RULES.get(field, _accept)(said))


def find_fault(provider: ExtensionProvider) -> str:
    """Returns what is wrong with a provider first, "" where nothing is."""
    return next((f"{p.path}: {p.message}" for p in validate_provider(provider)), "")


def _accept(_: Any) -> Iterator[Problem]:
    return iter(())


def _check_service(service: str, port: int) -> Problems:
    namespace, slash, host = service.rpartition("/")
    if not service or (slash and not namespace) or not host or "/" in namespace:
        yield warning("bad-host", "service", f"{service!r}: expected host or namespace/host")
    if not 1 <= port <= 65535:
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


def _check_path(path: str, text: str) -> rules.Found:
    return () if _PATH.fullmatch(text) else (warning("bad-path", path, f"{text!r} is not a valid URL path"),)


# -- tracers ---------------------------------------------------------------------------------------------------------------


def _check_zipkin(said: ZipkinTracingProvider) -> Problems:
    if said.path and not said.path.startswith("/"):
        yield warning("bad-path", "path", f"{said.path!r}: must begin with /")
    yield from _check_path("path", said.path)
    yield from _check_timeout(said.timeout)
    yield from each("headers", said.headers, _check_header)


def _check_http(said: HttpService) -> Problems:
    yield from _check_path("path", said.path)
    yield from _check_timeout(said.timeout)
    yield from each("headers", said.headers, _check_header)


def _check_open_telemetry(said: OpenTelemetryTracingProvider) -> Problems:
    if said.http is not None:
        yield from below("http", _check_http(said.http))
        if said.grpc is not None:
            yield warning("exclusive-fields", "grpc", "only one of http and grpc may be set")
    if said.grpc is not None:
        yield from below("grpc", _check_timeout(said.grpc.timeout))
        yield from each("grpc.initialMetadata", said.grpc.initial_metadata, _check_header)
    if (sampler := said.dynatrace_sampler) is not None:
        if sampler.http_service is None and said.http is None:
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


# -- loggers ---------------------------------------------------------------------------------------------------------------


def check_log_format(path: str, text: str) -> Problems:
    """Yields a warning if a text is no format of access logs that Envoy can parse."""
    for problem in check_format(path, text.replace(_WITHOUT_QUERY, "%REQ(")):
        yield warning(problem.code, path, problem.message)


def check_log_fields(path: str, fields: Mapping[str, Any]) -> Problems:
    """Yields a warning for each value, in maps and lists too, that is no format of access logs."""
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
    """Returns the fields of a format that is a JSON object, None where a text is none."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _check_file(said: EnvoyFileAccessLogProvider) -> Problems:
    if (form := said.log_format) is not None:
        yield from check_log_format("logFormat.text", form.text or "")
        yield from check_log_fields("logFormat.labels", form.labels or {})


def _check_names(field: str, names: tuple[str, ...]) -> Problems:
    for index, name in enumerate(names):
        if not _TOKEN.fullmatch(name):
            yield warning("bad-header-name", f"{field}[{index}]", f"{name!r} is not a valid header name")


def _check_http_service_log(said: EnvoyHttpGrpcV3LogProvider) -> Problems:
    yield from _check_states(said)
    yield from _check_names("additionalRequestHeadersToLog", said.additional_request_headers_to_log)
    yield from _check_names("additionalResponseHeadersToLog", said.additional_response_headers_to_log)
    yield from _check_names("additionalResponseTrailersToLog", said.additional_response_trailers_to_log)


def _check_states(said: EnvoyHttpGrpcV3LogProvider | EnvoyTcpGrpcV3LogProvider) -> Problems:
    for index, name in enumerate(said.filter_state_objects_to_log):
        if not name:
            yield warning("missing-field", f"filterStateObjectsToLog[{index}]", "a name is required")


def _check_open_telemetry_log(said: EnvoyOpenTelemetryLogProvider) -> Problems:
    if (form := said.log_format) is not None:
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
