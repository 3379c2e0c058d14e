"""Workloads of a file get the proxy of the default profile."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pilot.cli.pilotctl import pilotctl
from pilot.config.mesh.mesh_config import MeshConfig
from webhook.inject.errors import InjectionError
from webhook.kube_inject import FileInjector, inject_document
from webhook.defaults.injector_config import default_config

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


def injected(document: dict[str, Any], native: bool = False, **values: Any) -> dict[str, Any]:
    return inject_document(document, FileInjector(default_config(values), MeshConfig(), native=native), warnings.append)


warnings: list[str] = []


def names(found: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in found]


def test_a_pod_gets_its_proxy_last_and_the_network_set_up() -> None:
    spec = injected(POD)["spec"]
    assert names(spec["containers"]) == ["app", "istio-proxy"]
    assert names(spec["initContainers"]) == ["istio-init"]


def test_a_native_proxy_is_an_init_container_that_goes_on() -> None:
    spec = injected(POD, native=True)["spec"]
    assert names(spec["containers"]) == ["app"]
    assert names(spec["initContainers"]) == ["istio-init", "istio-proxy"]
    assert spec["initContainers"][1]["restartPolicy"] == "Always"


def test_the_status_says_what_was_added() -> None:
    status = json.loads(injected(POD)["metadata"]["annotations"]["sidecar.istio.io/status"])
    assert status["containers"] == ["istio-proxy"]
    assert status["initContainers"] == ["istio-init"]
    assert status["imagePullSecrets"] is None
    assert status["revision"] == "default"


def test_the_input_is_not_changed() -> None:
    before = json.dumps(POD)
    injected(POD)
    assert json.dumps(POD) == before


def test_an_object_without_pods_stays_as_it_is() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    assert injected(service) is service


def test_a_wrong_annotation_refuses_the_pod() -> None:
    pod = {**POD, "metadata": {"name": "a", "annotations": {"sidecar.istio.io/interceptionMode": "SOME"}}}
    with pytest.raises(
        InjectionError, match=r"invalid value 'SOME' for annotation 'sidecar\.istio\.io/interceptionMode'"
    ):
        injected(pod)


def test_the_name_of_an_interface_has_at_most_as_many_characters_as_linux_takes() -> None:
    def excluding(name: str) -> dict[str, Any]:
        return injected(
            {**POD, "metadata": {"name": "a", "annotations": {"traffic.sidecar.istio.io/excludeInterfaces": name}}}
        )

    assert names(excluding("fifteen-letters")["spec"]["initContainers"]) == ["istio-init"]
    with pytest.raises(InjectionError, match="too long"):
        excluding("sixteen--letters")


def test_host_networking_is_left_alone_with_a_warning() -> None:
    pod = {**POD, "spec": {**POD["spec"], "hostNetwork": True}}
    warnings.clear()
    assert injected(pod) == pod
    assert 'Skipping injection because Pod "shop/tickets" has host networking enabled' in warnings[0]


def test_the_policy_of_the_webhook_does_not_keep_files_from_being_injected() -> None:
    never = [{"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}]
    found = injected(
        POD,
        **{"global": {"proxy": {"autoInject": "disabled"}}, "sidecarInjectorWebhook": {"neverInjectSelector": never}},
    )
    assert names(found["spec"]["containers"]) == ["app", "istio-proxy"]


def test_quantities_are_written_as_kubernetes_writes_them_though_a_pod_stays_without_a_proxy() -> None:
    limited = {**POD["spec"]["containers"][0], "resources": {"limits": {"cpu": "3000m"}}}
    found = injected(
        {
            **POD,
            "metadata": {"name": "a", "labels": {"sidecar.istio.io/inject": "false"}},
            "spec": {"containers": [limited]},
        }
    )
    assert found["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "3"}}


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
def test_an_operator_gives_the_mesh_config_that_it_installs(
    settings: str, expected: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "operator.yaml").write_text(
        f"{{apiVersion: install.istio.io/v1alpha1, kind: IstioOperator, spec: {{{settings}}}}}"
    )
    (tmp_path / "pod.yaml").write_text(json.dumps(POD))
    done = CliRunner().invoke(
        pilotctl,
        ["kube-inject", "-f", str(tmp_path / "pod.yaml"), "--operatorFileName", str(tmp_path / "operator.yaml")],
    )
    assert done.exit_code == 0, done.output
    proxy = yaml.safe_load(done.output)["spec"]["containers"][1]
    assert json.loads(next(e["value"] for e in proxy["env"] if e["name"] == "PROXY_CONFIG")) == expected


@pytest.mark.parametrize(
    ("policy", "metadata", "told"),
    [
        (None, {"name": "a"}, []),
        ("ClusterFirst", {"name": "a"}, []),
        ("Default", {"name": "a", "namespace": "shop"}, ["shop/a is Default"]),
        ("None", {"generateName": "a-"}, ["/a- is None"]),
        ("Default", {"name": "a", "generateName": "b-"}, ["/a is Default"]),
    ],
)
def test_a_pod_whose_names_are_not_resolved_by_the_cluster_is_told_of(
    policy: str | None, metadata: dict[str, str], told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    spec = {"containers": [{"name": "a", "image": "a"}]} | ({"dnsPolicy": policy} if policy else {})
    injected({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    found = [record.getMessage() for record in caplog.records if "DNSPolicy" in record.getMessage()]
    assert found == [
        f"the DNSPolicy of {text}, not ClusterFirst: its proxy may not find the control plane" for text in told
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
def test_the_flag_s_revision_comes_before_that_of_the_values(
    words: tuple[str, ...], values: str, revision: str, tmp_path: pathlib.Path
) -> None:
    pod, said, out = (tmp_path / name for name in ("pod.yaml", "values.yaml", "out.yaml"))
    pod.write_text(json.dumps(POD))
    said.write_text(values)
    done = CliRunner().invoke(
        pilotctl, ["kube-inject", "-f", str(pod), "--valuesFile", str(said), "-o", str(out), *words]
    )
    assert (done.exit_code, done.output) == (0, "")
    metadata = yaml.safe_load(out.read_text())["metadata"]
    assert metadata["labels"]["service.istio.io/canonical-name"] == "tickets"
    assert json.loads(metadata["annotations"]["sidecar.istio.io/status"])["revision"] == revision
    assert metadata["annotations"]["istio.io/rev"] == revision
