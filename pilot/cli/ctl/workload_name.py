"""The argument [KIND/]NAME[.NAMESPACE] of commands, and the Pods that it selects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster
from pilot.cli.ctl.forwarding import find_pods
from pilot.kube.object_client import ResourceKey, VersionedKind

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

Plain = dict[str, Any]
KINDS = {
    "pod": VersionedKind("v1", "Pod"),
    "deployment": VersionedKind("apps/v1", "Deployment"),
    "statefulset": VersionedKind("apps/v1", "StatefulSet"),
    "daemonset": VersionedKind("apps/v1", "DaemonSet"),
    "job": VersionedKind("batch/v1", "Job"),
}
SERVICE = "service"
_KINDS = {**KINDS, SERVICE: VersionedKind("v1", "Service")}
_SHORT_NAMES = {"po": "pod", "deploy": "deployment", "sts": "statefulset", "ds": "daemonset", "svc": SERVICE}


class WorkloadName(NamedTuple):
    """The kind in lower case, the name, and the namespace of a Pod, of its owner, or of a Service."""

    kind: str
    name: str
    namespace: str


def parse_workload(text: str, namespace: str) -> WorkloadName:
    """Return the workload that an argument names. `namespace` is that of a name without one."""
    kind, _, rest = text.rpartition("/")
    name, _, own_namespace = rest.partition(".")
    kind = workload_kind(kind or "pod")
    if kind not in _KINDS:
        raise click.UsageError(f"the kind {kind!r} is none of {', '.join(_KINDS)}")
    return WorkloadName(kind, name, own_namespace or namespace)


def workload_kind(text: str) -> str:
    """Return the name of a kind for its short name or plural. It is in KINDS if it is one of a workload."""
    kind = text.lower()
    return _SHORT_NAMES.get(kind, kind.removesuffix("s"))


async def read_workload(objects: ObjectClient, workload: WorkloadName) -> Plain:
    """Return the object of a workload. Raise CommandError if there is none."""
    plain = await objects.get(ResourceKey(_KINDS[workload.kind], workload.namespace, workload.name))
    if plain is None:
        raise CommandError(f"there is no {workload.kind} {workload.namespace}/{workload.name}")
    return plain


def pod_selector(workload: WorkloadName, plain: Plain) -> str:
    """Return the labels of the Pods of a workload or Service, or "" if it selects none by labels."""
    selector = plain["spec"].get("selector") or {}
    labels = selector if workload.kind == SERVICE else selector.get("matchLabels") or {}
    return ",".join(f"{name}={value}" for name, value in labels.items())


def find_workload_pod(cluster: Cluster, workload: WorkloadName) -> Plain:
    """Return the Pod, or the first running Pod of a workload. Raise CommandError if there is none."""
    return find_workload_pods(cluster, workload)[0]


def find_workload_pods(cluster: Cluster, workload: WorkloadName) -> list[Plain]:
    """Return the Pod, or the running Pods of a workload, sorted by name. Raise CommandError if there are none."""
    plain = cluster.run(lambda objects, _: read_workload(objects, workload))
    if workload.kind == "pod":
        return [plain]
    selector = pod_selector(workload, plain)
    pods = find_pods(cluster, workload.namespace, selector) if selector else []
    if not pods:
        raise CommandError(f"the {workload.kind} {workload.namespace}/{workload.name} has no running Pod")
    return pods
