"""Injection of the proxy into workloads of a file."""

from __future__ import annotations

import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy.operator.manifest import render_installation
from pilot.cli.pilotctl import pilotctl
from pilot.config.mesh.mesh_config import MeshConfig
from testing.apiserver.server import ApiServer
from tests.unit.cli.ctl.commands.test_install import Shell
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


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    """A cluster with two control planes, of which the revision canary has another image and concurrency."""
    server = ApiServer()
    await server.start()
    for revision, tag, concurrency in (("", "1.0", 2), ("canary", "2.0", 7)):
        values = {"global": {"proxy": {"image": f"mesh.example/proxy:{tag}"}}}
        mesh = {"defaultConfig": {"concurrency": concurrency}}
        spec = {"revision": revision, "values": values, "meshConfig": mesh}
        operator = {"apiVersion": "install.istio.io/v1alpha1", "kind": "IstioOperator", "spec": spec}
        for plain in render_installation(operator, lambda _: None).objects(["Pilot"]):
            if plain["kind"] == "ConfigMap":
                server.put(plain)
    yield Shell(server, tmp_path)
    await server.stop()


def injected_proxy(text: str) -> tuple[str, int]:
    """Return the image and the concurrency of the proxy in an injected Pod."""
    proxy = yaml.safe_load(text)["spec"]["containers"][1]
    return proxy["image"], json.loads(next(e["value"] for e in proxy["env"] if e["name"] == "PROXY_CONFIG"))[
        "concurrency"
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ("mesh.example/proxy:1.0", 2)),
        (("-r", "canary"), ("mesh.example/proxy:2.0", 7)),
        (("-r", "default"), ("mesh.example/proxy:1.0", 2)),
        (("--injectConfigMapName", "istio-sidecar-injector-canary"), ("mesh.example/proxy:2.0", 2)),
        (("--meshConfigMapName", "istio-canary"), ("mesh.example/proxy:1.0", 7)),
        (("--valuesFile", "values.yaml"), ("mesh.example/proxy:3.0", 2)),
        (("--injectConfigFile", "config.yaml"), ("mesh.example/proxy:1.0", 2)),
        (("--meshConfigFile", "mesh.yaml"), ("mesh.example/proxy:1.0", 9)),
    ],
)
async def test_what_no_file_configures_is_read_from_the_cluster(
    shell: Shell,
    words: tuple[str, ...],
    expected: tuple[str, int],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("pod.yaml").write_text(json.dumps(POD))
    pathlib.Path("values.yaml").write_text("global: {proxy: {image: 'mesh.example/proxy:3.0'}}")
    pathlib.Path("mesh.yaml").write_text("defaultConfig: {concurrency: 9}")
    config = shell.server.get("", "configmaps", "istio-system", "istio-sidecar-injector-canary")
    pathlib.Path("config.yaml").write_text(config["data"]["config"])
    result = await shell("kube-inject", "-f", "pod.yaml", *words)
    assert result.exit_code == 0, result.output
    assert injected_proxy(result.stdout) == expected


async def test_missing_injection_configuration_is_named(shell: Shell, tmp_path: pathlib.Path) -> None:
    (tmp_path / "pod.yaml").write_text(json.dumps(POD))
    result = await shell("kube-inject", "-f", str(tmp_path / "pod.yaml"), "-r", "none")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: there is no ConfigMap istio-system/istio-sidecar-injector-none; select the control plane with "
        "-i and -r, or inject without a cluster with --injectConfigFile, --valuesFile and --meshConfigFile\n"
    )
