"""Findings of `analyze` by istioctl's code: each has its severity, and disappears if the cause does."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, NamedTuple

import pytest

from pilot.cli.ctl.analyzers.listed import ANALYZERS
from pilot.cli.ctl.istio_codes import ANALYZER_NAMES, belongs_to, codes_of, istio_code
from pilot.cli.pilotctl import main

INJECTED = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled}}\n"
AMBIENT = INJECTED.replace("istio-injection: enabled", "istio.io/dataplane-mode: ambient")
PROXY = "{name: istio-proxy, image: hub/proxyv2:1}"
HOOKS = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n"
INJECTOR = HOOKS + (
    "metadata: {{name: istio-sidecar-injector{0}}}\n"
    "webhooks: [{{name: rev.istio.io, clientConfig: {1}, namespaceSelector: {{matchLabels: {{istio-injection: enabled}}}}}}]\n"
)
BY_SERVICE = "{service: {name: istiod, namespace: istio-system}}"
VALUES = '{"global": {"hub": "hub", "tag": "2", "proxy": {"image": "proxyv2"}}, "sidecarInjectorWebhook": {"enableNamespacesByDefault": SWITCH}}'
CONFIG = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio-sidecar-injector, namespace: istio-system}\ndata:\n  values: '"
    + VALUES
    + "'\n"
)


def pod(spec: str = "containers: [{name: app}]", metadata: str = "") -> str:
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web-0, namespace: shop{metadata}}}\nspec: {{{spec}}}\n"


def deployment(spec: str = "containers: [{name: app}]", metadata: str = "labels: {app: web}") -> str:
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n"
        f"spec: {{template: {{metadata: {{{metadata}}}, spec: {{{spec}}}}}}}\n"
    )


def service(ports: str, name: str = "web", more: str = "selector: {app: web}, ") -> str:
    return f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{{more}ports: [{ports}]}}\n"


def istio(kind: str, spec: str, name: str = "a", group: str = "networking.istio.io/v1", more: str = "") -> str:
    return f"apiVersion: {group}\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{{spec}}}\n{more}"


def rule(policy: str) -> str:
    return istio("DestinationRule", f"host: tea.example.com, trafficPolicy: {{{policy}}}")


def patch(operation: str, apply_to: str = "HTTP_FILTER", more: str = "", match: str = "") -> str:
    filters = "listener: {filterChain: {filter: {name: m, subFilter: {name: f}}}}"
    named = filters if apply_to == "HTTP_FILTER" else "context: ANY"
    return istio(
        "EnvoyFilter",
        f"{more}configPatches: [{{applyTo: {apply_to}, match: {{{match}{named}}}, "
        f"patch: {{operation: {operation}{'' if operation == 'REMOVE' else ', value: {name: f}'}}}}}]",
        group="networking.istio.io/v1alpha3",
    )


def gateway(name: str, credential: str = "cert") -> str:
    return istio(
        "Gateway",
        "selector: {istio: edge}, servers: [{hosts: [a.example.com], port: {number: 443, name: https, protocol: HTTPS}, "
        f"tls: {{mode: SIMPLE, credentialName: {credential}}}}}]",
        name,
    )


def route(name: str, destination: str, more: str = "") -> str:
    return istio("VirtualService", f"hosts: [tea], {more}http: [{{route: [{{destination: {{{destination}}}}}]}}]", name)


def definition(version: str) -> str:
    return (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
        "metadata: {name: tlsroutes.gateway.networking.k8s.io, "
        f"annotations: {{gateway.networking.k8s.io/bundle-version: {version}}}}}\n"
    )


def condition(status: str) -> str:
    conditions = f"[{{type: WaypointAccepted, status: '{status}', reason: Invalid, message: no}}]"
    more = f"status: {{conditions: {conditions}}}\n"
    return istio("AuthorizationPolicy", "action: ALLOW", group="security.istio.io/v1", more=more)


GATEWAY_POD = pod(metadata=", labels: {app: web, gateway.networking.k8s.io/gateway-name: edge}")
TELEMETRY = istio("Telemetry", "SELECTOR: {matchLabels: {app: web}}", group="telemetry.istio.io/v1")
NETWORKS = CONFIG.replace("values: '" + VALUES, "meshNetworks: 'networks: {n: {endpoints: [{fromRegistry: east}]}}")
CLUSTER = (
    "apiVersion: v1\nkind: Secret\nmetadata: {name: c, namespace: istio-system, labels: {istio/multiCluster: 'true'}}\n"
    "stringData: {east: kubeconfig}\n"
)
ADDRESS = "hosts: [tea.example.com], location: MESH_EXTERNAL, resolution: STATIC, endpoints: [{address: 1.2.3.4}], "
ENTRY = istio("ServiceEntry", ADDRESS + "ports: [{number: 1, name: a, protocol: TCP}]")
REMOVED = (
    "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n"
    "spec: {group: rbac.istio.io, names: {kind: ServiceRole}}\n"
)
UDP, TCP = "{name: udp, port: 53, protocol: UDP}", "{name: tcp, port: 53}"


class Case(NamedTuple):
    """Objects for which a finding is reported, and similar ones for which it is not."""

    code: str
    severity: str
    subject: str
    path: str
    broken: tuple[str, ...]
    mended: tuple[str, ...]


CASES = (
    Case("IST0002", "warning", "a", "spec.names.kind", (REMOVED,), (REMOVED.replace("rbac.istio.io", "rbac.other"),)),
    Case(
        *("IST0102", "info", "shop", "metadata.labels"),
        (INJECTED.replace("istio-injection: enabled", "a: b"),),
        (INJECTED.replace("enabled", "disabled"),),
    ),
    Case("IST0103", "warning", "web-0", "", (INJECTED, pod()), (INJECTED, pod(f"containers: [{PROXY}]"))),
    Case("IST0103", "warning", "web-0", "", (INJECTED, pod()), (INJECTED, pod("hostNetwork: true, containers: []"))),
    Case(
        *("IST0107", "warning", "web-0", "metadata.annotations[networking.istio.io/exportTo]"),
        (pod(metadata=", annotations: {networking.istio.io/exportTo: a}"),),
        (pod(metadata=", annotations: {networking.example/exportTo: a}"),),
    ),
    Case(
        *("IST0108", "warning", "web-0", "metadata.annotations[sidecar.istio.io/proxyImages]"),
        (pod(metadata=", annotations: {sidecar.istio.io/proxyImages: a}"),),
        (pod(metadata=", annotations: {sidecar.istio.io/proxyImage: a}"),),
    ),
    Case(
        *("IST0108", "warning", "web", "spec.template.metadata.annotations[sidecar.istio.io/proxyImages]"),
        (deployment(metadata="annotations: {sidecar.istio.io/proxyImages: a}"),),
        (deployment(metadata="annotations: {sidecar.istio.io/proxyImage: a}"),),
    ),
    Case(
        *("IST0116", "warning", "web", "spec.template.metadata.labels"),
        (INJECTED, deployment(), service(UDP, "dns"), service(TCP)),
        (INJECTED, deployment(), service(UDP, "dns"), service("{name: tcp, port: 54}")),
    ),
    Case(
        *("IST0118", "info", "web", "spec.ports[0].name"),
        (service("{name: main, port: 80}"),),
        (service("{name: main, port: 80, appProtocol: http}"),),
    ),
    Case(
        *("IST0123", "warning", "shop", "metadata.labels"),
        (INJECTED.replace("enabled", "enabled, istio.io/rev: a"),),
        (INJECTED.replace("enabled", "disabled, istio.io/rev: a"),),
    ),
    Case(
        *("IST0125", "warning", "web-0", "metadata.annotations[status.sidecar.istio.io/port]"),
        (pod(metadata=", annotations: {status.sidecar.istio.io/port: soon}"),),
        (pod(metadata=", annotations: {status.sidecar.istio.io/port: '15020'}"),),
    ),
    Case(
        *("IST0126", "error", "istio-sidecar-injector"),
        "data.meshNetworks.networks[n].endpoints[0].fromRegistry",
        (NETWORKS,),
        (NETWORKS, CLUSTER),
    ),
    Case(
        *("IST0128", "warning", "a", "spec.trafficPolicy.tls"),
        (rule("tls: {mode: SIMPLE}"),),
        (rule("tls: {mode: SIMPLE, caCertificates: /roots.pem}"),),
    ),
    Case(
        *("IST0128", "warning", "a", "spec.trafficPolicy.tls"),
        (rule("tls: {mode: SIMPLE, insecureSkipVerify: true}"),),
        (rule("tls: {mode: ISTIO_MUTUAL}"),),
    ),
    Case(
        *("IST0129", "warning", "a", "spec.trafficPolicy.portLevelSettings[0].tls"),
        (rule("portLevelSettings: [{port: {number: 443}, tls: {mode: SIMPLE}}]"),),
        (rule("portLevelSettings: [{port: {number: 443}, tls: {mode: SIMPLE, caCertificates: /roots.pem}}]"),),
    ),
    Case("IST0134", "warning", "a", "spec.ports[0].protocol", (ENTRY,), (ENTRY.replace("TCP", "HTTP"),)),
    Case(
        *("IST0134", "warning", "a", "spec.ports[0].protocol"),
        (ENTRY,),
        (ENTRY.replace("hosts", "addresses: [240.0.0.1], hosts"),),
    ),
    Case(
        *("IST0135", "info", "web-0", "metadata.annotations[sidecar.istio.io/inject]"),
        (pod(metadata=", annotations: {sidecar.istio.io/inject: 'true'}"),),
        (pod(metadata=", annotations: {sidecar.istio.io/inject: 'true'}, labels: {sidecar.istio.io/inject: 'true'}"),),
    ),
    Case(
        *("IST0137", "warning", "web", "spec.template.metadata.labels"),
        (
            INJECTED,
            deployment(),
            service("{name: a, port: 1, targetPort: 9}"),
            service("{port: 2, targetPort: 9}", "b"),
        ),
        (
            INJECTED,
            deployment(),
            service("{name: a, port: 1, targetPort: 9}"),
            service("{port: 2, targetPort: 8}", "b"),
        ),
    ),
    Case(
        *("IST0138", "warning", "a", "spec.servers"),
        (gateway("a"), gateway("b")),
        (gateway("a"), gateway("b", "other")),
    ),
    Case(
        *("IST0139", "error", "istio-sidecar-injector", "webhooks[0]"),
        (INJECTOR.format("", BY_SERVICE), INJECTOR.format("-b", BY_SERVICE)),
        (INJECTOR.format("", BY_SERVICE), INJECTOR.format("-b", BY_SERVICE).replace("enabled", "other")),
    ),
    Case(
        *("IST0139", "error", "istio-sidecar-injector", "webhooks[0].clientConfig.service"),
        (INJECTOR.format("", BY_SERVICE), service(TCP).replace("shop", "istio-system")),
        (INJECTOR.format("", BY_SERVICE), service(TCP, "istiod").replace("shop", "istio-system")),
    ),
    Case(
        *("IST0140", "warning", "edge", "spec.http[0].route[0].destination"),
        (route("tea", "host: tea, subset: v1"), route("edge", "host: tea", "gateways: [a], ")),
        (route("tea", "host: tea, subset: v1"), route("edge", "host: tea, subset: v1", "gateways: [a], ")),
    ),
    Case(
        *("IST0144", "warning", "web-0", "spec.securityContext.runAsUser"),
        (pod("securityContext: {runAsUser: 1337}, containers: []"),),
        (pod("securityContext: {runAsUser: 1338}, containers: []"),),
    ),
    Case(
        *("IST0144", "warning", "web", "spec.template.spec.containers[0].securityContext.runAsUser"),
        (deployment("containers: [{name: app, securityContext: {runAsUser: 1337}}]"),),
        (deployment("containers: [{name: istio-proxy, securityContext: {runAsUser: 1337}}]"),),
    ),
    Case(
        *("IST0146", "warning", "web", "spec.template.spec.containers"),
        (
            INJECTED.replace("enabled", "disabled"),
            INJECTOR.format("", BY_SERVICE),
            deployment("containers: [{name: istio-proxy, image: auto}]"),
        ),
        (INJECTED, INJECTOR.format("", BY_SERVICE), deployment("containers: [{name: istio-proxy, image: auto}]")),
    ),
    Case(
        *("IST0148", "info", "shop", "metadata.labels"),
        (CONFIG.replace("SWITCH", "true"), INJECTED.replace("istio-injection: enabled", "a: b")),
        (CONFIG.replace("SWITCH", "false"), INJECTED.replace("istio-injection: enabled", "a: b")),
    ),
    Case(
        *("IST0150", "warning", "web", "spec.ports[0].name"),
        (service("{name: tcp, port: 80}", more="type: ExternalName, externalName: a.example.com, "),),
        (service("{name: http, port: 80}", more="type: ExternalName, externalName: a.example.com, "),),
    ),
    Case(
        *("IST0151", "warning", "a", "spec.configPatches[0].patch.operation"),
        (patch("INSERT_BEFORE"),),
        (patch("INSERT_BEFORE", more="priority: 1, "),),
    ),
    Case(
        *("IST0152", "warning", "a", "spec.configPatches[0].patch.operation"),
        (patch("REPLACE", "CLUSTER", "priority: 1, "),),
        (patch("MERGE", "CLUSTER"),),
    ),
    Case(
        *("IST0153", "warning", "a", "spec.configPatches[0].patch.operation"),
        (patch("ADD", "ROUTE_CONFIGURATION"),),
        (patch("MERGE", "ROUTE_CONFIGURATION"),),
    ),
    Case(
        *("IST0154", "warning", "a", "spec.configPatches[0].patch.operation"),
        (patch("REMOVE", "ROUTE_CONFIGURATION", "priority: 1, "),),
        (patch("REMOVE", "CLUSTER", "priority: 1, "),),
    ),
    Case(
        *("IST0155", "warning", "b", "spec.configPatches[0].patch.operation"),
        (
            patch("ADD", match="proxy: {proxyVersion: '1.*'}, "),
            patch("INSERT_BEFORE").replace("{name: a", "{name: b"),
        ),
        (patch("ADD"), patch("INSERT_BEFORE").replace("{name: a", "{name: b")),
    ),
    Case(
        *("IST0158", "warning", "shop", ""),
        (CONFIG.replace("SWITCH", "false"), INJECTED, pod(f"containers: [{PROXY}]")),
        (CONFIG.replace("SWITCH", "false"), INJECTED, pod(f"containers: [{PROXY.replace(':1', ':2-debug')}]")),
    ),
    Case(
        *("IST0163", "warning", "istio-sidecar-injector", "webhooks[0].clientConfig.url"),
        (INJECTOR.format("", "{url: 'https:///inject'}"),),
        (INJECTOR.format("", "{url: 'https://a.example.com/inject'}"),),
    ),
    Case(
        *("IST0164", "info", "istio-sidecar-injector", "webhooks[0].clientConfig.url"),
        (INJECTOR.format("", "{url: 'https://[2001:db8::1]:15017/inject'}"),),
        (INJECTOR.format("", "{url: 'https://a.example.com/inject'}"),),
    ),
    Case(
        *("IST0165", "warning", "edge", "spec.gateways[0]"),
        (route("edge", "host: tea", "gateways: [shop/a~istio-autogenerated-k8s-gateway~http], "),),
        (route("edge", "host: tea", "gateways: [shop/a], "),),
    ),
    Case(
        *("IST0166", "warning", "a", "spec.selector"),
        (GATEWAY_POD, TELEMETRY.replace("SELECTOR", "selector")),
        (pod(metadata=", labels: {app: web}"), TELEMETRY.replace("SELECTOR", "selector")),
    ),
    Case(
        *("IST0167", "warning", "a", "metadata.namespace"),
        (AMBIENT, istio("Sidecar", "egress: [{hosts: ['*/*']}]")),
        (INJECTED, istio("Sidecar", "egress: [{hosts: ['*/*']}]")),
    ),
    Case(
        *("IST0167", "warning", "a", "spec.workloadSelector"),
        (
            pod(metadata=", labels: {app: web}, annotations: {ambient.istio.io/redirection: enabled}"),
            istio("Sidecar", "workloadSelector: {labels: {app: web}}, egress: [{hosts: ['*/*']}]"),
        ),
        (
            pod(metadata=", labels: {app: web}"),
            istio("Sidecar", "workloadSelector: {labels: {app: web}}, egress: [{hosts: ['*/*']}]"),
        ),
    ),
    Case(
        *("IST0171", "warning", "a", "status.conditions[0]"),
        (condition("False"),),
        (condition("True"),),
    ),
    Case(  # release note gateway-api-crd-version-analyzer
        *("IST0176", "warning", "tlsroutes.gateway.networking.k8s.io"),
        "metadata.annotations[gateway.networking.k8s.io/bundle-version]",
        (definition("v1.4.1"),),
        (definition("v1.5.0-rc.1"),),
    ),
)


def analyze(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str], objects: tuple[str, ...], *words: str
) -> list[dict[str, Any]]:
    (folder / "mesh.yaml").write_text("---\n".join(objects))
    main(["analyze", str(folder), "-o", "json", "--output-threshold", "info", *words])
    findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return findings


@pytest.mark.parametrize("case", CASES, ids=[f"{case.code}-{case.path}" for case in CASES])
def test_finding_has_the_code_and_severity_of_istioctl(
    case: Case, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = analyze(tmp_path, capsys, case.broken)
    (finding, *_) = [f for f in findings if f.get("istioCode") == case.code]
    assert (finding["severity"], finding["name"], finding.get("path", "")) == (case.severity, case.subject, case.path)
    assert finding["line"] > 0
    assert any(belongs_to(finding, [name]) for name in ANALYZER_NAMES)
    assert not [f for f in analyze(tmp_path, capsys, case.mended) if f.get("istioCode") == case.code]


def test_installation_has_no_findings(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, flags in (("all", ()), ("blue", ("-r", "blue")), ("ambient", ("-s", "profile=ambient"))):
        assert main(["manifest", "generate", *flags, "-o", str(tmp_path / f"{name}.yaml")]) == 0
        capsys.readouterr()
        assert main(["analyze", str(tmp_path / f"{name}.yaml"), "-o", "json", "--output-threshold", "info"]) == 0
        assert json.loads(capsys.readouterr().out) == []


def test_only_the_selected_analyzers_run(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Release note 55316."""
    objects = (INJECTED, pod("securityContext: {runAsUser: 1337}, containers: []"), rule("tls: {mode: SIMPLE}"))
    names = ("injection.Analyzer", "applicationUID.Analyzer")
    words = [word for name in names for word in ("--analyzer", name)]
    assert {f["istioCode"] for f in analyze(tmp_path, capsys, objects, *words)} == {"IST0103", "IST0144"}
    schema = analyze(tmp_path, capsys, (istio("VirtualService", "hosts: [a], nonsense: 1"),), "--analyzer", names[0])
    assert schema == []


def test_analyzers_are_listed_with_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--list-analyzers"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["injection.Analyzer", "IST0102, IST0103, IST0123, IST0148"] in lines


def test_label_that_enables_no_injection_is_reported(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = analyze(tmp_path, capsys, (INJECTED.replace("enabled", "enable"),))
    assert finding["message"] == "the value 'enable' enables nothing; did you mean enabled?"


def test_findings_of_a_namespace_are_in_it(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = (INJECTED.replace("enabled", "enabled, istio.io/rev: a"), pod())
    assert [f["kind"] for f in analyze(tmp_path, capsys, objects, "-n", "shop")] == ["Namespace", "Pod"]


@pytest.mark.parametrize(
    "part",
    [
        "metadata: {name: a, labels: [b], annotations: {sidecar.istio.io/inject: [c]}}",
        "metadata: {name: a}\nspec: {containers: [1, {name: istio-proxy}], ports: {a: b}, template: 7, selector: [8]}",
        "metadata: {name: a}\nspec: {template: {spec: {containers: 4}, metadata: {labels: {a: [b]}}}}",
        "metadata: {name: a}\nwebhooks: [2, {clientConfig: {service: 1, url: 'https://['}, namespaceSelector: {matchExpressions: [{}]}}]",
        "metadata: {name: a}\nspec: 3\nstatus: {conditions: [1], parents: {}}\ndata: {values: '[', meshNetworks: '{'}",
    ],
)
def test_objects_of_a_wrong_shape_do_not_stop_the_analysis(
    part: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {kind for analyzer in ANALYZERS for kind in analyzer.kinds}
    objects = [f"apiVersion: {kind.api_version}\nkind: {kind.name}\n{part}\n" for kind in sorted(kinds)]
    findings = analyze(tmp_path, capsys, (*objects, INJECTED, pod()))
    assert "IST0103" in {f.get("istioCode") for f in findings}


def test_documentation_lists_every_code_and_what_it_is_called_here() -> None:
    page = (pathlib.Path(__file__).parents[5] / "docs" / "analysis.md").read_text(encoding="utf-8")
    rows = {row.split(" | ")[0].strip("| "): row for row in page.splitlines() if row.startswith("| IST")}
    assert {case.code for case in CASES} <= rows.keys()
    for code in [f"IST01{number:02}" for number in (1, 2, 3, *range(6, 14), 16, 18, 22, 23, *range(25, 78))]:
        assert code in rows
    kinds = ("", "Gateway", "Sidecar", "VirtualService", "DestinationRule", "Telemetry", "Pod", "Deployment")
    for code, row in rows.items():
        for own in re.findall(r"`([a-z][a-z-]+)`", row.split(" | ")[2]):
            codes = {istio_code({"code": own, "kind": kind, "severity": "warning"}) for kind in kinds}
            assert code in codes, own


ANALYZERS_OF_ISTIOCTL = """
annotations.K8sAnalyzer
applicationUID.Analyzer
auth.AuthorizationPoliciesAnalyzer
authn.BlockedCIDRsAnalyzer
conditions.ConditionAnalyzer
deployment.MultiServiceAnalyzer
deprecation.DeprecationAnalyzer
destinationrule.CaCertificateAnalyzer
destinationrule.SubsetSelectPodAnalyzer
envoyfilter.EnvoyPatchAnalyzer
externalcontrolplane.ExternalControlPlaneAnalyzer
gateway.CertificateAnalyzer
gateway.ConflictingGatewayAnalyzer
gateway.IngressGatewayPortAnalyzer
gateway.SecretAnalyzer
injection.Analyzer
injection.ImageAnalyzer
injection.ImageAutoAnalyzer
k8sgateway.CRDVersionAnalyzer
k8sgateway.SelectorAnalyzer
meshnetworks.MeshNetworksAnalyzer
schema.ValidationAnalyzer
service.PortNameAnalyzer
serviceentry.Analyzer
serviceentry.ConflictingServiceEntryProtocolAnalyzer
services.MultiClusterServiceAnalyzer
sidecar.SelectorAnalyzer
telemetry.DefaultSelectorAnalyzer
telemetry.LightstepAnalyzer
telemetry.ProviderAnalyzer
telemetry.SelectorAnalyzer
virtualservice.ConflictingMeshGatewayHostsAnalyzer
virtualservice.DestinationHostAnalyzer
virtualservice.DestinationRuleAnalyzer
virtualservice.GatewayAnalyzer
virtualservice.JWTClaimRouteAnalyzer
webhook.Analyzer
"""
WITHOUT_COUNTERPART = {"authn.BlockedCIDRsAnalyzer", "telemetry.LightstepAnalyzer"}


def test_documentation_lists_every_analyzer_of_istioctl() -> None:
    """Release note 55316, and the table of all analyzers."""
    page = (pathlib.Path(__file__).parents[5] / "docs" / "analysis.md").read_text(encoding="utf-8")
    table = {name: text for name, text in re.findall(r"^\| `([\w.]+)` \| (.+) \|$", page, re.MULTILINE) if "." in name}
    names = ANALYZERS_OF_ISTIOCTL.split()
    assert list(table) == names
    assert set(ANALYZER_NAMES) == set(names) - WITHOUT_COUNTERPART
    codes = {name: ", ".join(re.findall(r"IST\d+", text)) for name, text in table.items()}
    assert {name: codes[name] for name in ANALYZER_NAMES} == {name: codes_of(name) for name in ANALYZER_NAMES}
    assert all(table[name].startswith("none: ") for name in WITHOUT_COUNTERPART)
