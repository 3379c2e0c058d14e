"""Injected pods: the cases of pods/cases.yaml, injected by the webhook and by kube-inject with the same result.

The plain pod of a group is recorded in full, and every other case as its differences from it: path, before, after.
`pytest tests/golden --rewrite` writes the records and deletes those without a case.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from pilot.ingest.mesh_config import decode_mesh_config
from testing.kube.webhooks import config_texts, review
from webhook.inject.config import InjectorConfig, decode_config
from webhook.inject.errors import InjectionError
from webhook.kube_inject import FileInjector, inject_document
from webhook.pod.json_patch import apply
from webhook.server.pod_review import InjectionSettings, PodFacts, answer_pod
from webhook.server.review import decode_review

HERE = pathlib.Path(__file__).parent / "pods"
Plain = dict[str, Any]


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """The differences of a pod and its injector from the plain ones.

    `container` is merged into the pod's container, `containers` are added, and `only` replaces both. `generate` is the pod's
    generateName, `owner` its controller.
    """

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    namespace: str = "shop"
    spec: Plain = {}
    container: Plain = {}
    containers: list[Plain] = []
    only: list[Plain] = []
    values: Plain = {}
    mesh: Plain = {}
    native: bool = False
    revision: str = ""
    compliance: str = ""
    generate: str = ""
    owner: Plain = {}

    def pod(self) -> Plain:
        """Return the pod to inject."""
        app = {
            "name": "app",
            "image": "registry.example/app:1",
            "ports": [{"containerPort": 80, "name": "http"}],
            **self.container,
        }
        name = {"generateName": self.generate} if self.generate else {"name": "tickets"}
        owners = {"ownerReferences": [{**self.owner, "uid": "u", "controller": True}]} if self.owner else {}
        metadata = {
            **name,
            "namespace": self.namespace,
            "labels": self.labels,
            "annotations": self.annotations,
            **owners,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": self.only or [app, *self.containers], **self.spec},
        }


CASES: dict[str, dict[str, Case]] = msgspec.convert(
    yaml.safe_load((HERE / "cases.yaml").read_text()), dict[str, dict[str, Case]]
)


NAMES = [(group, name) for group, cases in CASES.items() for name in cases]


@functools.cache
def injector_config(values: str) -> InjectorConfig:
    return decode_config(*config_texts(**json.loads(values)))


@pytest.fixture(autouse=True, scope="module")
def parsed_templates() -> Iterator[None]:
    """Free the parsed templates of all cases, more than 100 MB, when the last test of this module has run."""
    yield
    injector_config.cache_clear()


def mesh_config(case: Case) -> Any:
    mesh, problems = decode_mesh_config([case.mesh])
    assert mesh is not None, problems
    return mesh


def inject_by_webhook(case: Case, pod: Plain) -> Any:
    """Return the pod with the webhook's patch applied, or the reason for its rejection."""
    settings = InjectionSettings(
        injector_config(json.dumps(case.values)),
        mesh_config(case),
        revision=case.revision,
        compliance_policy=case.compliance,
    )
    body = json.dumps(review(pod)).encode()
    try:
        answer = answer_pod(decode_review(body), "/inject", settings, PodFacts(case.native))
    except InjectionError as error:
        return {"refused": str(error)}
    return pod if answer is None else apply(pod, json.loads(answer.patch))


@functools.cache
def by_webhook(group: str, name: str) -> Any:
    case = CASES[group][name]
    return without_empty(inject_by_webhook(case, case.pod()))


def by_command(case: Case) -> Any:
    injector = FileInjector(
        injector_config(json.dumps(case.values)), mesh_config(case), case.revision, case.native, case.compliance
    )
    try:
        return inject_document(case.pod(), injector, lambda text: None)
    except InjectionError as error:
        return {"refused": str(error)}


def without_empty(value: Any) -> Any:
    """Drop nulls, and empty maps and lists. They mean the same as their absence, except in an emptyDir."""
    if isinstance(value, dict):
        items = {k: without_empty(v) for k, v in value.items()}
        return {k: v for k, v in items.items() if v is not None and (v not in ({}, []) or k == "emptyDir")}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def changes(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({**before, **after}):
            yield from changes(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif _named(before) and _named(after):
        names = [[item["name"] for item in items] for items in (before, after)]
        if [n for n in names[0] if n in names[1]] != [n for n in names[1] if n in names[0]]:
            yield f"{path} order", names[0], names[1]
        olds, news = ({item["name"]: item for item in items} for items in (before, after))
        for name in {**olds, **news}:
            yield from changes(olds.get(name), news.get(name), f"{path}[{name}]")
    elif before != after:
        yield path, before, after


def _named(items: Any) -> bool:
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) and "name" in item for item in items):
        return False
    return len({item["name"] for item in items}) == len(items)


SKIPPED_BY_WEBHOOK = ["undecided-where-disabled", "illegal-policy", "never-selector", "never-before-always"]
"""Cases of `labels` that the webhook's policy or selectors exclude. kube-inject injects every file, as istioctl does."""


@pytest.mark.parametrize(("group", "name"), NAMES, ids=["/".join(pair) for pair in NAMES])
def test_webhook_and_command_agree_and_injection_is_idempotent(group: str, name: str) -> None:
    case = CASES[group][name]
    pod = by_webhook(group, name)
    if group == "labels" and name in SKIPPED_BY_WEBHOOK:
        assert pod == without_empty(case.pod())
        assert "istio-proxy" in {container["name"] for container in by_command(case)["spec"]["containers"]}
    elif "refused" in pod:  # the command's message names the object and the field
        assert "refused" in by_command(case)
    else:
        assert pod == without_empty(by_command(case))
    if "refused" not in pod:
        first = inject_by_webhook(case, case.pod())
        second = inject_by_webhook(case, first)
        assert sorted(map(str, changes(without_empty(first), without_empty(second)))) == []


@pytest.mark.parametrize("group", CASES)
def test_pods_equal_the_golden_files(group: str, pytestconfig: pytest.Config) -> None:
    pods = {name: by_webhook(group, name) for name in CASES[group]}
    plain = pods.pop("plain")
    texts = {HERE / "expected" / f"{group}.yaml": _dump({name: _record(plain, pod) for name, pod in pods.items()})}
    if group == next(iter(CASES)):
        texts[HERE / "expected" / "plain-pod.yaml"] = _dump(plain)
    if pytestconfig.getoption("rewrite"):
        (HERE / "expected").mkdir(exist_ok=True)
        for path, text in texts.items():
            path.write_text(text)
        for path in (HERE / "expected").iterdir():
            if path.stem not in (*CASES, "plain-pod"):
                path.unlink()
    for path, text in texts.items():
        assert yaml.safe_load(path.read_text()) == yaml.safe_load(text), path.name


def _record(plain: Any, result: Any) -> Any:
    return (
        result
        if "refused" in result
        else {path: {"before": old, "after": new} for path, old, new in changes(plain, result)}
    )


class _WithoutAliases(yaml.SafeDumper):
    """Writes repeated values in full."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _dump(value: Any) -> str:
    return yaml.dump(value, Dumper=_WithoutAliases, sort_keys=True, width=150, allow_unicode=True)


def test_golden_files_match_the_cases() -> None:
    assert len(NAMES) >= 90
    assert {path.stem for path in (HERE / "expected").iterdir()} == {*CASES, "plain-pod"}


METADATA_READ = {
    "sidecar.istio.io/": (
        "interceptionMode",
        "proxyCPU",
        "proxyMemory",
        "proxyCPULimit",
        "proxyMemoryLimit",
        "proxyImage",
        "proxyImageType",
        "logLevel",
        "componentLogLevel",
        "agentLogLevel",
        "bootstrapOverride",
        "userVolume",
        "userVolumeMount",
        "capNetBindService",
        "nativeSidecar",
        "rewriteAppHTTPProbers",
        "inject",
    ),
    "traffic.sidecar.istio.io/": (
        "includeOutboundIPRanges",
        "excludeOutboundIPRanges",
        "includeInboundPorts",
        "excludeInboundPorts",
        "excludeOutboundPorts",
        "includeOutboundPorts",
        "excludeInterfaces",
        "kubevirtInterfaces",
    ),
    "status.sidecar.istio.io/": ("port",),
    "readiness.status.sidecar.istio.io/": ("initialDelaySeconds", "periodSeconds", "failureThreshold"),
    "istio.io/": ("reroute-virtual-interfaces",),
    "prometheus.istio.io/": ("merge-metrics", "scrape-targets"),
    "prometheus.io/": ("scrape", "port", "path"),
    "proxy.istio.io/": ("config",),
    "inject.istio.io/": ("templates",),
    "k8s.v1.cni.cncf.io/": ("networks",),
    "apm.datadoghq.com/": ("env",),
    "resource.opentelemetry.io/": ("service.version",),
    "service.istio.io/": ("canonical-name", "canonical-revision", "workload-name"),
    "app.kubernetes.io/": ("name", "version"),
    "topology.istio.io/": ("network",),
    "security.istio.io/": ("tlsMode",),
    "networking.istio.io/": ("tunnel",),
    "": ("app", "version"),
}


def test_every_annotation_and_label_has_a_case() -> None:
    case_keys = {
        key for cases in CASES.values() for case in cases.values() for key in (*case.annotations, *case.labels)
    }
    assert [
        prefix + name for prefix, names in METADATA_READ.items() for name in names if prefix + name not in case_keys
    ] == []
