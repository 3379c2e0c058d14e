"""Istio's own functions of templates."""
from __future__ import annotations

from typing import Any

import pytest

from pilot.ingest.mesh_config import decode_mesh_config
from pilot.model.config.mesh_config import MeshConfig
from pilot.model.config.proxy_config import ProxyConfig, Tracing
from webhook.inject.api_object import ApiObject
from webhook.inject.functions import FUNCTIONS
from webhook.inject.message import TemplateMessage
from webhook.pod.schema import TYPES
from webhook.template import parse
from webhook.template.values import StringMap

PROVIDER = {"service": "a.b", "port": 1, "serviceAttributeEnrichment": "OTEL_SEMANTIC_CONVENTIONS"}
OTEL = {"extensionProviders": [{"name": "o", "opentelemetry": PROVIDER}]}


def data() -> dict[str, Any]:
    mesh, _ = decode_mesh_config([OTEL])
    assert mesh is not None
    containers = [
        {"name": "app", "image": "r:5000/a:1@sha256:x", "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}]},
        {"name": "istio-proxy", "ports": [{"containerPort": 15090}]},
    ]
    return {
        "meta": ApiObject({"annotations": {"a": "1"}, "labels": {"l": "v"}}, TYPES["ObjectMeta"]),
        "spec": ApiObject({"containers": containers}, TYPES["PodSpec"]),
        "one": ApiObject({"containers": containers[:1]}, TYPES["PodSpec"]),
        "texts": StringMap({"b": "2", "a": "<"}),
        "sampled": TemplateMessage(ProxyConfig(tracing=Tracing(sampling=10.0)), ProxyConfig),
        "config": TemplateMessage(ProxyConfig(concurrency=2, interception_mode="TPROXY", proxy_metadata={"b": "1", "a": "2"}), ProxyConfig),
        "plain": TemplateMessage(ProxyConfig(), ProxyConfig),
        "mesh": TemplateMessage(mesh, MeshConfig),
        "tree": {"a": None, "b": {"c": None}, "d": [None, {"e": None}, 1.0], "f": {}},
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{{ annotation .meta `a` `d` }} {{ annotation .meta `b` `d` }} {{ annotation .meta `b` nil }}", "1 d <nil>"),
        ("{{ isset .meta.Annotations `a` }} {{ isset .meta.Annotations `b` }}", "true false"),
        ("{{ excludeInboundPort 15020 `` }} {{ excludeInboundPort `0` `1` }} {{ excludeInboundPort 2 `1, 3` }} {{ excludeInboundPort 3 `1,3` }}",
         "15020 1 1,3,2 1,3"),
        ("{{ includeInboundPorts .spec.Containers }} {{ applicationPorts .spec.Containers }}", "80,15090 80"),
        ("{{ kubevirtInterfaces `a` }} {{ excludeInterfaces `b` }}", "a b"),
        ("{{ valueOrDefault `` `d` }} {{ valueOrDefault nil 1 }} {{ valueOrDefault 0 1 }}", "d 1 0"),
        ("{{ toJSON .texts }} {{ toJsonMap .texts (strdict `a` `3`) }}", '{"a":"\\u003c","b":"2"} {"a":"3","b":"2"}'),
        ("{{ (fromJSON `{\"a\": [1]}`).a }} {{ fromJSON `bad` }}", "[1] {}"),
        ("{{ structToJSON (index (index .spec.Containers 0).Ports 1) }} {{ structToJSON nil }}", '{"containerPort":53,"protocol":"UDP"} {}'),
        ("{{ protoToJSON .sampled }}", '{"tracing":{"sampling":10}}'),
        ("{{ protoToJSON .plain }} {{ protoToJSON .config }}", '{} {"concurrency":2,"interceptionMode":"TPROXY","proxyMetadata":{"a":"2","b":"1"}}'),
        ("{{ toYaml .texts }}", "a: <\nb: \"2\"\n"),
        ("{{ indent 2 `a\nb` }}", "a\n  b"),
        ("{{ directory `/a/b/c` }} {{ contains `a` `cat` }} {{ toLower `AB` }}", "/a/b/ true ab"),
        ("{{ appendMultusNetwork `` `n/c` }} {{ appendMultusNetwork `x` `n/c` }} {{ appendMultusNetwork `n/c` `n/c` }}", "n/c x, n/c n/c"),
        ("{{ appendMultusNetwork `[{\"name\": \"x\"}]` `n/c` }}", '[{"name": "x"}, {"name": "c", "namespace": "n"}]'),
        ("{{ appendMultusNetwork `[{\"name\": \"c\", \"namespace\": \"n\"}]` `n/c` }}", '[{"name": "c", "namespace": "n"}]'),
        ("{{ env `PYISTIOD_NO_SUCH_VARIABLE` `d` }}", "d"),
        ("{{ omit .texts `a` }} {{ mergeMaps .texts (strdict `c` `4`) }} {{ strdict `a` }}", "map[b:2] map[a:< b:2 c:4] map[a:]"),
        ("{{ omitNil .tree }} {{ omitNil nil }}", "map[d:[1] f:map[]] <no value>"),
        ("{{ formatDuration .plain.DrainDuration }} {{ .plain.DrainDuration.Seconds }} {{ .plain.DrainDuration.Nanos }}", "45s 45 0"),
        ("{{ structToJSON (index .one.Containers 0) }}",
         '{"name":"app","image":"r:5000/a:1@sha256:x","ports":[{"containerPort":80},{"containerPort":53,"protocol":"UDP"}]}'),
        ("{{ otelResourceAttributes .mesh .meta.Annotations .meta.Labels `ns` .one.Containers }}",
         "service.namespace=ns,service.version=1@sha256:x,service.instance.id=ns.$(POD_NAME).app"),
        ("{{ .plain.InterceptionMode }} {{ .plain.InterceptionMode.String }} {{ .plain.HoldApplicationUntilProxyStarts.GetValue }}",
         "REDIRECT REDIRECT false"),
        ("{{ if .plain.InterceptionMode }}x{{ end }}|{{ if .config.InterceptionMode }}x{{ end }}", "|x"),
        ("{{ .plain.GetTracing.GetTlsSettings.GetCaCertificates }}|{{ if .plain.GetTracing }}x{{ end }}", "|"),
        ("{{ .mesh.ProxyListenPort }} {{ .mesh.GetTrustDomain }} {{ .plain.StatusPort }}", "15001 cluster.local 15020"),
    ],
)  # fmt: skip
def test_results(text: str, wanted: str) -> None:
    assert parse("inject", text, FUNCTIONS).execute(data()) == wanted
