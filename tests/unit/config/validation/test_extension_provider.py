"""Invalid extension providers and log formats. Each is reported, and the rest of the mesh config applies."""

from __future__ import annotations

import pytest
import yaml

from pilot.ingest.mesh_config import decode_mesh_config

COLLECTOR = "service: a.b, port: 80"
COLLECTOR_MAP = f"{{{COLLECTOR}}}"
ROWS = [
    ("name: '', zipkin: " + COLLECTOR_MAP, "missing-field", "name"),
    ("name: x, zipkin: {port: 80}", "bad-host", "zipkin.service"),
    ("name: x, zipkin: {service: /a, port: 80}", "bad-host", "zipkin.service"),
    ("name: x, zipkin: {service: a/b/c, port: 80}", "bad-host", "zipkin.service"),
    ("name: x, zipkin: {service: a.b}", "bad-port", "zipkin.port"),
    ("name: x, datadog: {service: a.b, port: 70000}", "bad-port", "datadog.port"),
    ("name: x, skywalking: {service: a.b, port: 0}", "bad-port", "skywalking.port"),
    (f"name: x, zipkin: {{{COLLECTOR}, path: v2}}", "bad-path", "zipkin.path"),
    (f"name: x, zipkin: {{{COLLECTOR}, path: '/a b'}}", "bad-path", "zipkin.path"),
    (f"name: x, zipkin: {{{COLLECTOR}, timeout: 0s}}", "bad-duration", "zipkin.timeout"),
    (
        f"name: x, zipkin: {{{COLLECTOR}, headers: [{{name: 'a b', value: c}}]}}",
        "bad-header-name",
        "zipkin.headers[0].name",
    ),
    (
        f'name: x, zipkin: {{{COLLECTOR}, headers: [{{name: a, value: "b\\nc"}}]}}',
        "bad-header-value",
        "zipkin.headers[0].value",
    ),
    (
        f"name: x, zipkin: {{{COLLECTOR}, headers: [{{name: a, envName: ''}}]}}",
        "missing-field",
        "zipkin.headers[0].envName",
    ),
    (
        f"name: x, opentelemetry: {{{COLLECTOR}, http: {{path: /a}}, grpc: {{}}}}",
        "exclusive-fields",
        "opentelemetry.grpc",
    ),
    (f"name: x, opentelemetry: {{{COLLECTOR}, http: {{path: '/a b'}}}}", "bad-path", "opentelemetry.http.path"),
    (
        f"name: x, opentelemetry: {{{COLLECTOR}, http: {{path: /a, timeout: -1s}}}}",
        "bad-duration",
        "opentelemetry.http.timeout",
    ),
    (
        f"name: x, opentelemetry: {{{COLLECTOR}, grpc: {{initialMetadata: [{{name: ''}}]}}}}",
        "bad-header-name",
        "opentelemetry.grpc.initialMetadata[0].name",
    ),
    (
        f"name: x, opentelemetry: {{{COLLECTOR}, dynatraceSampler: {{tenant: a}}}}",
        "missing-field",
        "opentelemetry.dynatraceSampler.httpService",
    ),
    (
        f"name: x, opentelemetry: {{{COLLECTOR}, dynatraceSampler: {{httpService: {{{COLLECTOR}}}}}}}",
        "missing-field",
        "opentelemetry.dynatraceSampler.httpService.http",
    ),
    ("name: x, envoyFileAccessLog: {logFormat: {text: '%NEVER%'}}", "bad-format", "envoyFileAccessLog.logFormat.text"),
    ("name: x, envoyFileAccessLog: {logFormat: {text: '100%'}}", "bad-format", "envoyFileAccessLog.logFormat.text"),
    (
        "name: x, envoyFileAccessLog: {logFormat: {labels: {a: {b: ['%X%']}}}}",
        "bad-format",
        "envoyFileAccessLog.logFormat.labels[a][b][0]",
    ),
    (
        f"name: x, envoyOtelAls: {{{COLLECTOR}, logFormat: {{text: '%X%'}}}}",
        "bad-format",
        "envoyOtelAls.logFormat.text",
    ),
    (
        f"name: x, envoyOtelAls: {{{COLLECTOR}, logFormat: {{labels: {{a: 1}}}}}}",
        "bad-format",
        "envoyOtelAls.logFormat.labels[a]",
    ),
    (
        f"name: x, envoyHttpAls: {{{COLLECTOR}, additionalRequestHeadersToLog: ['']}}",
        "bad-header-name",
        "envoyHttpAls.additionalRequestHeadersToLog[0]",
    ),
    (
        f"name: x, envoyTcpAls: {{{COLLECTOR}, filterStateObjectsToLog: ['']}}",
        "missing-field",
        "envoyTcpAls.filterStateObjectsToLog[0]",
    ),
]


@pytest.mark.parametrize(("provider", "code", "path"), ROWS, ids=[f"{path} {code}" for _, code, path in ROWS])
def test_invalid_provider_is_reported_and_mesh_config_applies(provider: str, code: str, path: str) -> None:
    config, problems = decode_mesh_config(
        [yaml.safe_load(f"{{trustDomain: td, extensionProviders: [{{{provider}}}]}}")]
    )
    assert config is not None
    assert config.trust_domain == "td"
    assert [(p.code, p.path, str(p.severity)) for p in problems] == [(code, f"extensionProviders[3].{path}", "warning")]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{accessLogFile: /a, accessLogFormat: '%NEVER%'}", "accessLogFormat"),
        ("{accessLogFile: /a, accessLogEncoding: JSON, accessLogFormat: 'no object'}", "accessLogFormat"),
        ('{accessLogFile: /a, accessLogEncoding: JSON, accessLogFormat: \'{"a": "%NEVER%"}\'}', "accessLogFormat[a]"),
    ],
)
def test_invalid_access_log_format_is_reported(text: str, path: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(text)])
    assert config is not None
    assert [(p.code, p.path) for p in problems] == [("bad-format", path)]
