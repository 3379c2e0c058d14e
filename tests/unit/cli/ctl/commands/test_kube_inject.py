"""Injection of the proxy into workloads of a file."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pilot.cli.pilotctl import pilotctl
from pilot.config.mesh.mesh_config import MeshConfig
from webhook.defaults.injector_config import default_config
from webhook.inject.errors import InjectionError
from webhook.kube_inject import FileInjector, inject_document

pytestmark = pytest.mark.slow

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "tickets", "namespace": "shop"},
    "spec": {
        "containers": [
            {"name": "app", "image": "registry.example/app:1", "ports": [{"containerPort": 80, "name": "http"}]}
        ]
    },
}


def inject_pod(document: dict[str, Any], native: bool = False, **values: Any) -> dict[str, Any]:
    return inject_document(document, FileInjector(default_config(values), MeshConfig(), native=native), warnings.append)


warnings: list[str] = []


def names(containers: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in containers]


def test_proxy_follows_the_application_container() -> None:
    spec = inject_pod(POD)["spec"]
    assert names(spec["containers"]) == ["app", "istio-proxy"]
    assert names(spec["initContainers"]) == ["istio-init"]


def test_native_proxy_is_a_restartable_init_container() -> None:
    spec = inject_pod(POD, native=True)["spec"]
    assert names(spec["containers"]) == ["app"]
    assert names(spec["initContainers"]) == ["istio-init", "istio-proxy"]
    assert spec["initContainers"][1]["restartPolicy"] == "Always"


def test_status_annotation_lists_additions() -> None:
    status = json.loads(inject_pod(POD)["metadata"]["annotations"]["sidecar.istio.io/status"])
    assert status["containers"] == ["istio-proxy"]
    assert status["initContainers"] == ["istio-init"]
    assert status["imagePullSecrets"] is None
    assert status["revision"] == "default"


def test_input_is_not_modified() -> None:
    before = json.dumps(POD)
    inject_pod(POD)
    assert json.dumps(POD) == before


def test_object_without_pods_stays_unchanged() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    assert inject_pod(service) is service


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("interceptionMode", "SOME", "interceptionMode invalid, use REDIRECT,TPROXY,NONE: SOME"),
        ("userVolume", "{a: b", 'not valid JSON; expected {"NAME": {VOLUME}}'),
        ("userVolumeMount", '["/a"]', 'not a JSON object of objects; expected {"NAME": {MOUNT}}'),
    ],
)
def test_invalid_annotation_is_named_with_its_object(name: str, value: str, fault: str) -> None:
    metadata = {"annotations": {f"sidecar.istio.io/{name}": value}}
    for kind, place in (("Deployment", "spec.template."), ("CronJob", "spec.jobTemplate.")):
        template = {"metadata": metadata, "spec": POD["spec"]}
        if kind == "CronJob":
            spec = {"jobTemplate": {"metadata": metadata, "spec": {"template": {"spec": POD["spec"]}}}}
        else:
            spec = {"template": template}
        with pytest.raises(InjectionError) as raised:
            inject_pod({"kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
        assert str(raised.value) == f"{kind} shop/web: {place}metadata.annotations[sidecar.istio.io/{name}]: {fault}"


def test_interface_name_length_is_limited() -> None:
    def excluding(name: str) -> dict[str, Any]:
        return inject_pod(
            {**POD, "metadata": {"name": "a", "annotations": {"traffic.sidecar.istio.io/excludeInterfaces": name}}}
        )

    assert names(excluding("fifteen-letters")["spec"]["initContainers"]) == ["istio-init"]
    with pytest.raises(InjectionError, match="too long"):
        excluding("sixteen--letters")


def test_host_network_pod_is_skipped_with_a_warning() -> None:
    pod = {**POD, "spec": {**POD["spec"], "hostNetwork": True}}
    warnings.clear()
    assert inject_pod(pod) == pod
    assert 'Skipping injection because Pod "shop/tickets" has host networking enabled' in warnings[0]


def test_webhook_policy_does_not_apply_to_files() -> None:
    never = [{"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}]
    pod = inject_pod(
        POD,
        **{"global": {"proxy": {"autoInject": "disabled"}}, "sidecarInjectorWebhook": {"neverInjectSelector": never}},
    )
    assert names(pod["spec"]["containers"]) == ["app", "istio-proxy"]


def test_quantities_are_normalized_without_injection() -> None:
    limited = {**POD["spec"]["containers"][0], "resources": {"limits": {"cpu": "3000m"}}}
    pod = inject_pod(
        {
            **POD,
            "metadata": {"name": "a", "labels": {"sidecar.istio.io/inject": "false"}},
            "spec": {"containers": [limited]},
        }
    )
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "3"}}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("values: {global: {variant: debug}}", {"image": {"imageType": "debug"}}),
        (
            "values: {global: {meshID: m}}, revision: canary",
            {"meshId": "m", "discoveryAddress": "istiod-canary.istio-system.svc:15012"},
        ),
        ("meshConfig: {defaultConfig: {concurrency: 3}}", {"concurrency": 3}),
        ("components: {pilot: {enabled: false}}, meshConfig: {defaultConfig: {concurrency: 3}}", {"concurrency": 3}),
    ],
)
def test_operator_file_provides_the_mesh_config(
    settings: str, expected: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "operator.yaml").write_text(
        f"{{apiVersion: install.istio.io/v1alpha1, kind: IstioOperator, spec: {{{settings}}}}}"
    )
    (tmp_path / "pod.yaml").write_text(json.dumps(POD))
    result = CliRunner().invoke(
        pilotctl,
        ["kube-inject", "-f", str(tmp_path / "pod.yaml"), "--operatorFileName", str(tmp_path / "operator.yaml")],
    )
    assert result.exit_code == 0, result.output
    proxy = yaml.safe_load(result.output)["spec"]["containers"][1]
    assert json.loads(next(e["value"] for e in proxy["env"] if e["name"] == "PROXY_CONFIG")) == expected


@pytest.mark.parametrize(
    ("policy", "metadata", "pods"),
    [
        (None, {"name": "a"}, []),
        ("ClusterFirst", {"name": "a"}, []),
        ("Default", {"name": "a", "namespace": "shop"}, ["shop/a is Default"]),
        ("None", {"generateName": "a-"}, ["/a- is None"]),
        ("Default", {"name": "a", "generateName": "b-"}, ["/a is Default"]),
    ],
)
def test_dns_policy_other_than_cluster_first_is_logged(
    policy: str | None, metadata: dict[str, str], pods: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    spec = {"containers": [{"name": "a", "image": "a"}]} | ({"dnsPolicy": policy} if policy else {})
    inject_pod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    logs = [record.getMessage() for record in caplog.records if "DNSPolicy" in record.getMessage()]
    assert logs == [
        f"the DNSPolicy of {text}, not ClusterFirst: its proxy may not find the control plane" for text in pods
    ]


@pytest.mark.parametrize(
    ("words", "values", "revision"),
    [
        ((), "{}", "default"),
        (("-r", "canary"), "{}", "canary"),
        (("-r", "default"), "{revision: canary}", "default"),
        ((), "{revision: canary}", "canary"),
        (("--revision", "r2"), "{revision: canary}", "r2"),
    ],
)
def test_revision_flag_wins_over_the_values(
    words: tuple[str, ...], values: str, revision: str, tmp_path: pathlib.Path
) -> None:
    pod, values_file, out = (tmp_path / name for name in ("pod.yaml", "values.yaml", "out.yaml"))
    pod.write_text(json.dumps(POD))
    values_file.write_text(values)
    result = CliRunner().invoke(
        pilotctl, ["kube-inject", "-f", str(pod), "--valuesFile", str(values_file), "-o", str(out), *words]
    )
    assert (result.exit_code, result.output) == (0, "")
    metadata = yaml.safe_load(out.read_text())["metadata"]
    assert metadata["labels"]["service.istio.io/canonical-name"] == "tickets"
    assert json.loads(metadata["annotations"]["sidecar.istio.io/status"])["revision"] == revision
    assert metadata["annotations"]["istio.io/rev"] == revision


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: ConfigMap\nmetadata: {name: a}\n", "FILE contains no workloads: nothing was injected\n"),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {}\n",
            '===> Deployment "a" has no containers\n\n',
        ),
    ],
)
def test_input_without_workloads_or_containers_is_reported(text: str, message: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    result = CliRunner().invoke(pilotctl, ["kube-inject", "-f", str(file)])
    assert (result.exit_code, result.stderr.replace(str(file), "FILE")) == (0, message)
