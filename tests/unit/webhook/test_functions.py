"""Tests of Istio's template functions."""

from __future__ import annotations

from typing import Any

import pytest

from gotemplate import TemplateError, parse
from gotemplate.values import StringMap
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.config.mesh.tracing import Tracing
from pilot.ingest.mesh_config import decode_mesh_config
from webhook.inject.api_object import ApiObject
from webhook.inject.functions import FUNCTIONS
from webhook.inject.message import TemplateMessage
from webhook.pod.schema import TYPES

PROVIDER = {"service": "a.b", "port": 1, "serviceAttributeEnrichment": "OTEL_SEMANTIC_CONVENTIONS"}
OTEL = {"extensionProviders": [{"name": "o", "opentelemetry": PROVIDER}]}


def template_data() -> dict[str, Any]:
    mesh, _ = decode_mesh_config([OTEL])
    assert mesh is not None
    rich = {
        "name": "a",
        "image": "",
        "resources": {},
        "tty": False,
        "lifecycle": {"preStop": {"sleep": {}, "httpGet": {"path": "/"}}},
        "securityContext": {"runAsUser": 0, "capabilities": {"drop": ["ALL"]}, "privileged": False},
        "env": [{"value": "v"}],
        "command": ["c"],
    }
    containers = [
        {
            "name": "app",
            "image": "r:5000/a:1@sha256:x",
            "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
        },
        {"name": "istio-proxy", "ports": [{"containerPort": 15090}]},
    ]
    return {
        "meta": ApiObject({"annotations": {"a": "1"}, "labels": {"l": "v"}}, TYPES["ObjectMeta"]),
        "spec": ApiObject({"containers": containers}, TYPES["PodSpec"]),
        "rich": ApiObject(
            {"containers": [rich], "nodeSelector": {"n": "1"}, "securityContext": {"supplementalGroups": [5]}},
            TYPES["PodSpec"],
        ),
        "empty": ApiObject({}, TYPES["PodSpec"]),
        "nothing": TemplateMessage(None, ProxyConfig),
        "one": ApiObject({"containers": containers[:1]}, TYPES["PodSpec"]),
        "texts": StringMap({"b": "2", "a": "<"}),
        "sampled": TemplateMessage(ProxyConfig(tracing=Tracing(sampling=10.0)), ProxyConfig),
        "config": TemplateMessage(
            ProxyConfig(concurrency=2, interception_mode="TPROXY", proxy_metadata={"b": "1", "a": "2"}), ProxyConfig
        ),
        "plain": TemplateMessage(ProxyConfig(), ProxyConfig),
        "mesh": TemplateMessage(mesh, MeshConfig),
        "tree": {"a": None, "b": {"c": None}, "d": [None, {"e": None}, 1.0], "f": {}, "g": [None], "h": []},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ annotation .meta `a` `d` }} {{ annotation .meta `b` `d` }} {{ annotation .meta `b` nil }}", "1 d <nil>"),
        ("{{ isset .meta.Annotations `a` }} {{ isset .meta.Annotations `b` }}", "true false"),
        (
            "{{ excludeInboundPort 15020 `` }} {{ excludeInboundPort `0` `1` }} {{ excludeInboundPort 2 `1, 3` }} {{ excludeInboundPort 3 `1,3` }}",
            "15020 1 1,3,2 1,3",
        ),
        ("{{ includeInboundPorts .spec.Containers }} {{ applicationPorts .spec.Containers }}", "80,15090 80"),
        ("{{ kubevirtInterfaces `a` }} {{ excludeInterfaces `b` }}", "a b"),
        ("{{ valueOrDefault `` `d` }} {{ valueOrDefault nil 1 }} {{ valueOrDefault 0 1 }}", "d 1 0"),
        ("{{ toJSON .texts }} {{ toJsonMap .texts (strdict `a` `3`) }}", '{"a":"\\u003c","b":"2"} {"a":"3","b":"2"}'),
        ('{{ (fromJSON `{"a": [1]}`).a }} {{ fromJSON `bad` }}', "[1] {}"),
        (
            "{{ structToJSON (index (index .spec.Containers 0).Ports 1) }} {{ structToJSON nil }}",
            '{"containerPort":53,"protocol":"UDP"} {}',
        ),
        ("{{ protoToJSON .sampled }}", '{"tracing":{"sampling":10}}'),
        (
            "{{ protoToJSON .plain }} {{ protoToJSON .config }}",
            '{} {"concurrency":2,"interceptionMode":"TPROXY","proxyMetadata":{"a":"2","b":"1"}}',
        ),
        ("{{ protoToJSON .nothing }} {{ protoToJSON .plain.Tracing }}", "{} {}"),
        ("{{ toYaml .texts }}", 'a: <\nb: "2"\n'),
        ("{{ indent 2 `a\nb` }}", "a\n  b"),
        ("{{ directory `/a/b/c` }} {{ contains `a` `cat` }} {{ toLower `AB` }}", "/a/b/ true ab"),
        (
            "{{ appendMultusNetwork `` `n/c` }} {{ appendMultusNetwork `x` `n/c` }} {{ appendMultusNetwork `n/c` `n/c` }}",
            "n/c x, n/c n/c",
        ),
        ('{{ appendMultusNetwork `[{"name": "x"}]` `n/c` }}', '[{"name": "x"}, {"name": "c", "namespace": "n"}]'),
        ('{{ appendMultusNetwork `[{"name": "c", "namespace": "n"}]` `n/c` }}', '[{"name": "c", "namespace": "n"}]'),
        ("{{ env `PYISTIOD_NO_SUCH_VARIABLE` `d` }}", "d"),
        (
            "{{ omit .texts `a` }} {{ mergeMaps .texts (strdict `c` `4`) }} {{ strdict `a` }}",
            "map[b:2] map[a:< b:2 c:4] map[a:]",
        ),
        ("{{ omitNil .tree }} {{ omitNil nil }}", "map[d:[1] f:map[] h:[]] <no value>"),
        (
            "{{ formatDuration .plain.DrainDuration }} {{ .plain.DrainDuration.Seconds }} {{ .plain.DrainDuration.Nanos }}",
            "45s 45 0",
        ),
        (
            "{{ structToJSON (index .one.Containers 0) }}",
            '{"name":"app","image":"r:5000/a:1@sha256:x","ports":[{"containerPort":80},{"containerPort":53,"protocol":"UDP"}]}',
        ),
        (
            "{{ otelResourceAttributes .mesh .meta.Annotations .meta.Labels `ns` .one.Containers }}",
            "service.namespace=ns,service.version=1@sha256:x,service.instance.id=ns.$(POD_NAME).app",
        ),
        (
            "{{ otelResourceAttributes .mesh nil nil `ns` nil }}|{{ otelResourceAttributes .plain nil nil `ns` .one.Containers }}|",
            "service.namespace=ns||",
        ),
        ("{{ valueOrDefault `v` `d` }} {{ valueOrDefault false `d` }}", "v false"),
        (
            '{{ appendMultusNetwork `[{"name": "c", "namespace": "m"}, {"name": "x", "namespace": "n"}]` `n/c` }}',
            '[{"name": "c", "namespace": "m"}, {"name": "x", "namespace": "n"}, {"name": "c", "namespace": "n"}]',
        ),
        (
            '{{ appendMultusNetwork `[{"name": "x"}]` `c` }} {{ appendMultusNetwork `[{"name": "c"}]` `c` }}'
            " {{ appendMultusNetwork `[x]` `c` }}",
            '[{"name": "x"}, {"name": "c"}] [{"name": "c"}] [x]',
        ),
        ("{{ strdict `a` `1` `b` `2` `c` `3` `d` }}", "map[a:1 b:2 c:3 d:]"),
        (
            "{{ range (index .spec.Containers 0).Ports }}{{ printf `%v|%+v|%T ` . . . }}{{ end }}",
            "{ 0 80  }|{Name: HostPort:0 ContainerPort:80 Protocol: HostIP:}|v1.ContainerPort "
            "{ 0 53 UDP }|{Name: HostPort:0 ContainerPort:53 Protocol:UDP HostIP:}|v1.ContainerPort ",
        ),
        (
            "{{ with index .rich.Containers 0 }}{{ structToJSON . }}{{ end }}",
            '{"name":"a","command":["c"],"env":[{"name":"","value":"v"}],"resources":{},'
            '"lifecycle":{"preStop":{"httpGet":{"path":"/","port":0},"sleep":{"seconds":0}}},'
            '"securityContext":{"capabilities":{"drop":["ALL"]},"privileged":false,"runAsUser":0}}',
        ),
        (
            "{{ with index .rich.Containers 0 }}"
            "{{ printf `%T %T %T %T %T` .SecurityContext .Resources .Command .Args .ReadinessProbe }}"
            " {{ .SecurityContext.RunAsUser }} {{ .SecurityContext.RunAsGroup }} {{ .ReadinessProbe }} {{ .Stdin }} {{ .TTY }}"
            " {{ .Command }} {{ .Args }} {{ .SecurityContext.Capabilities.Drop }}{{ end }}",
            "*v1.SecurityContext v1.ResourceRequirements []string []string *v1.Probe 0 <no value> <nil> false false [c] [] [ALL]",
        ),
        (
            "{{ with .rich }}{{ printf `%T %T %T` .NodeSelector .SecurityContext.SupplementalGroups .Overhead }} {{ .NodeSelector }} {{ .HostNetwork }}"
            " {{ .SecurityContext.SupplementalGroups }} {{ .NodeName }}|{{ end }}",
            "map[string]string []interface {} map[string]interface {} map[n:1] false [5] |",
        ),
        (
            "{{ with .empty }}{{ printf `%T %T %T` .NodeSelector .SecurityContext .Containers }} {{ .NodeSelector }} {{ .Containers }}"
            " {{ len .Volumes }} {{ .TerminationGracePeriodSeconds }} {{ .HostPID }}{{ if .SecurityContext }}x{{ end }}{{ end }}",
            "map[string]string *v1.PodSecurityContext []interface {} map[] [] 0 <no value> false",
        ),
        (
            "{{ .plain.InterceptionMode }} {{ .plain.InterceptionMode.String }} {{ .plain.HoldApplicationUntilProxyStarts.GetValue }}",
            "REDIRECT REDIRECT false",
        ),
        ("{{ if .plain.InterceptionMode }}x{{ end }}|{{ if .config.InterceptionMode }}x{{ end }}", "|x"),
        ("{{ .plain.GetTracing.GetTlsSettings.GetCaCertificates }}|{{ if .plain.GetTracing }}x{{ end }}", "|"),
        ("{{ .mesh.ProxyListenPort }} {{ .mesh.GetTrustDomain }} {{ .plain.StatusPort }}", "15001 cluster.local 15020"),
    ],
)
def test_functions(text: str, expected: str) -> None:
    assert parse("inject", text, FUNCTIONS).execute(template_data()) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{{ .spec.Nothing }}", "can't evaluate field Nothing in type v1.PodSpec"),
        (
            "{{ (index .rich.Containers 0).SecurityContext.Nothing }}",
            "can't evaluate field Nothing in type *v1.SecurityContext",
        ),
        ("{{ .empty.SecurityContext.RunAsUser }}", "nil pointer evaluating *v1.PodSecurityContext.RunAsUser"),
        ("{{ .plain.Nothing }}", "can't evaluate field Nothing in type *v1alpha1.ProxyConfig"),
        ("{{ .plain.GetNothing }}", "can't evaluate field GetNothing in type *v1alpha1.ProxyConfig"),
        ("{{ .nothing.Concurrency }}", "can't evaluate field Concurrency in type *v1alpha1.ProxyConfig"),
        ("{{ .plain.Tracing.Sampling }}", "nil pointer evaluating *v1alpha1.Tracing.Sampling"),
        ("{{ .plain.DrainDuration.Nothing }}", "can't evaluate field Nothing in type *durationpb.Duration"),
        ("{{ .config.Concurrency.Nothing }}", "can't evaluate field Nothing in type *wrapperspb.Value"),
        ("{{ .plain.Concurrency.Value }}", "nil pointer evaluating *wrapperspb.Value.Value"),
    ],
)
def test_missing_fields(text: str, error: str) -> None:
    with pytest.raises(TemplateError) as raised:
        parse("inject", text, FUNCTIONS).execute(template_data())
    assert str(raised.value).partition(">: ")[2] == error


def test_malformed_input_is_logged_and_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    assert (
        parse("inject", "{{ appendMultusNetwork `[x]` `n/c` }} {{ fromJSON `bad` }}", FUNCTIONS).execute({}) == "[x] {}"
    )
    assert [record.getMessage() for record in caplog.records] == [
        "unable to unmarshal the networks [x]",
        "unable to unmarshal bad",
    ]
