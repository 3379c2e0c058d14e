"""pilotctl check-inject: show which webhook injects a Pod, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pilot.cli.ctl.analyzers.selectors import WebhookSelectors
from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import NAMESPACE_DEFAULT, Cluster, default_namespace, with_cluster
from pilot.cli.ctl.command import with_output
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.cli.ctl.workload_name import KINDS, SERVICE, WorkloadName, parse_workload, pod_selector, read_workload
from pilot.install.injectors import NEVER
from pilot.kube.object_client import ResourceKey, VersionedKind

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

Plain = dict[str, Any]
Labels = Mapping[str, str]
_WEBHOOKS = VersionedKind("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")
_HEAD = ("WEBHOOK", "REVISION", "INJECTED", "REASON")
_PREVENTING = {"istio-injection": "disabled", "sidecar.istio.io/inject": "false"}


@click.command()
@click.argument("name", required=False, metavar="[KIND/]NAME[.NAMESPACE]")
@click.option(
    "-n", "--namespace", type=ANY_NAMESPACE, default="", help=f"namespace of the workload ({NAMESPACE_DEFAULT})"
)
@click.option("-l", "--labels", default="", metavar="NAME=VALUE,…", help="check a Pod with these labels instead")
@with_output
@with_cluster
def check_inject(cluster: Cluster, name: str | None, namespace: str, labels: str) -> CommandResult:
    """Show which webhook injects a workload, and why.

    NAME is a Pod or, for example, deployment/web, or svc/web for the first Pod of a Service. With --labels, the Pods of
    a namespace with these labels.
    """
    if (name is None) == (not labels):
        raise click.UsageError("specify either a workload or --labels")
    workload = parse_workload(name or "", namespace or default_namespace())

    async def work(objects: ObjectClient, _: ObjectClient) -> list[Plain]:
        around = await objects.get(ResourceKey(VersionedKind("v1", "Namespace"), "", workload.namespace))
        if around is None:
            raise CommandError(f"there is no namespace {workload.namespace}")
        pod = _parse_labels(labels) if labels else await _pod_labels(objects, workload)
        configurations = [one for one in await objects.list(_WEBHOOKS) if _is_injector(one)]
        return [_verdict(one, around["metadata"].get("labels") or {}, pod) for one in configurations]

    verdicts = sorted(cluster.run(work), key=lambda one: str(one["webhook"]))
    if not verdicts:
        raise CommandError("the cluster has no webhooks for injection")
    rows = [(one["webhook"], one["revision"], "✔" if one["injected"] else "✘", one["reason"]) for one in verdicts]
    several = sum(one["injected"] for one in verdicts) > 1
    return CommandResult(
        verdicts, [TextTable(_HEAD, rows), *(["ERROR: several webhooks inject the Pod."] if several else [])]
    )


def _parse_labels(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise click.UsageError(f"--labels {text!r}: use NAME=VALUE,NAME=VALUE")
    return {name: value for name, _, value in pairs}


async def _pod_labels(objects: ObjectClient, workload: WorkloadName) -> Labels:
    plain = await read_workload(objects, workload)
    if workload.kind == SERVICE:
        selector = pod_selector(workload, plain)
        pods = await objects.list(KINDS["pod"], selector, workload.namespace) if selector else []
        if not pods:
            raise CommandError(f"the service {workload.namespace}/{workload.name} has no Pods; use deployment/NAME")
        plain = min(pods, key=lambda one: str(one["metadata"]["name"]))
    pod = plain if workload.kind in ("pod", SERVICE) else plain["spec"]["template"]
    labels: Labels = (pod.get("metadata") or {}).get("labels") or {}
    return labels


def _is_injector(configuration: Plain) -> bool:
    return any(webhook["name"].endswith("istio.io") for webhook in configuration.get("webhooks", ()))


def _verdict(configuration: Plain, namespace: Labels, pod: Labels) -> Plain:
    selectors = [WebhookSelectors(webhook) for webhook in configuration["webhooks"]]
    match = next((one for one in selectors if one.match(namespace, pod)), None)
    metadata = configuration["metadata"]
    return {
        "webhook": metadata["name"],
        "revision": (metadata.get("labels") or {}).get("istio.io/rev", ""),
        "injected": match is not None,
        "reason": _reason(match, namespace, pod) if match else _obstacle(selectors, namespace, pod),
    }


def _reason(match: WebhookSelectors, namespace: Labels, pod: Labels) -> str:
    sides = (("Namespace", match.namespaces, namespace), ("Pod", match.objects, pod))
    parts = [
        f"{side} label {name}={labels[name]} matches"
        for side, selector, labels in sides
        if selector is not None
        for name in _names(selector)
        if name in labels
    ]
    return ", and ".join(parts) or "All namespaces and Pods without labels that prevent it are injected"


def _obstacle(selectors: list[WebhookSelectors], namespace: Labels, pod: Labels) -> str:
    never = NEVER["matchLabels"]
    if all(one.namespaces is not None and one.namespaces.match_labels == never for one in selectors):
        return "The webhook is deactivated and never matches; another one, such as that of a tag, injects instead"
    for side, labels in (("Pod", pod), ("Namespace", namespace)):
        for name, value in _PREVENTING.items():
            if labels.get(name) == value:
                return f"{side} has {name}={value} label, preventing injection"
    names = ("istio-injection", "istio.io/rev", "sidecar.istio.io/inject")
    expected = {f"{name}={value}" for name in names for one in selectors for value in one.values(name)}
    listed = f" ({', '.join(sorted(expected))})" if expected else ""
    return f"No matching labels of the namespace or the Pod{listed}"


def _names(selector: Any) -> list[str]:
    return [*selector.match_labels, *(one.key for one in selector.match_expressions if one.operator == "In")]
