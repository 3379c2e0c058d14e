"""Injects the proxy into workloads in files. A workload is a Pod, or an object with a Pod template such as a
Deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pilot.config.mesh.mesh_config import MeshConfig
from webhook.inject.annotations import PROXY_CONFIG, annotation_fault
from webhook.inject.config import InjectorConfig, WrittenConfig
from webhook.inject.decision import is_injected
from webhook.inject.errors import InjectionError
from webhook.inject.injection import inject, refuse_wrong
from webhook.inject.owner import WorkloadOwner, owner_of
from webhook.inject.proxy_config import apply_override
from webhook.inject.request import InjectionRequest
from webhook.pod.normal import ShapeError, normalize, without_nulls
from webhook.pod.schema import POD
from webhook.workloads import PLACES, with_zeros

Plain = dict[str, Any]
Warn = Callable[[str], None]
_ASKED = WrittenConfig(
    policy="enabled"
)  # a user who injects a file wants its workloads injected, regardless of the webhook's policy and selectors


class FileInjector(NamedTuple):
    """Settings for the injection of all workloads in a file."""

    config: InjectorConfig
    mesh: MeshConfig
    revision: str = ""
    native: bool = False
    compliance_policy: str = ""


def inject_document(document: Any, injector: FileInjector, warn: Warn) -> Any:
    """Return a document with its workloads injected, including those in a List. Other objects are unchanged.

    If a workload is skipped, `warn` is called with the reason. Raise InjectionError if a workload cannot be injected.
    """
    if not isinstance(document, dict):
        return document
    if document.get("kind") == "List":
        return {**document, "items": [inject_document(item, injector, warn) for item in document.get("items") or ()]}
    if document.get("kind") == "CronJob":
        return _cron_job(document, injector, warn)
    place = PLACES.get(document.get("kind") or "")
    if place is None:
        return document
    template = _at(document, place)
    return with_zeros(_replaced(document, place, _template(template, document, injector, warn)))


def _cron_job(document: Plain, injector: FileInjector, warn: Warn) -> Plain:
    """Return a CronJob with its Pod template injected. The metadata of the Job template serves as the metadata of the
    Pod."""
    job = _at(document, ("spec", "jobTemplate"))
    pod = _at(job, ("spec", "template"))
    injected = _template(
        {"metadata": job.get("metadata") or {}, "spec": pod.get("spec") or {}}, document, injector, warn
    )
    job = {**_replaced(job, ("spec", "template"), {**pod, "spec": injected["spec"]}), "metadata": injected["metadata"]}
    return _replaced(document, ("spec", "jobTemplate"), job)


def _at(node: Plain, path: tuple[str, ...]) -> Plain:
    for key in path:
        node = node.get(key) or {}
    return node


def _replaced(node: Plain, path: tuple[str, ...], value: Plain) -> Plain:
    if not path:
        return value
    return {**node, path[0]: _replaced(node.get(path[0]) or {}, path[1:], value)}


def _template(template: Plain, document: Plain, injector: FileInjector, warn: Warn) -> Plain:
    """Return the injected Pod or Pod template of a workload."""
    try:
        pod: Plain = without_nulls(normalize(template, POD))
    except ShapeError as error:
        place = "".join(f"{key}." for key in _place(document))
        raise InjectionError(f"{document.get('kind')} {_name(document, template)}: {place}{error}") from error
    owner = _owner(document)
    if not (pod.get("spec") or {}).get("containers"):
        warn(f'===> {owner.kind} "{_name(document, template)}" has no containers\n')
    if reason := _why_not(pod, injector):
        warn(f'===> Skipping injection because {owner.kind} "{_name(document, template)}" has {reason}\n')
        return pod
    try:
        return _injected(pod, owner, injector)
    except InjectionError as error:
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        place = "".join(f"{key}." for key in _metadata_place(document))
        faults = ((name, annotation_fault(name, value)) for name, value in annotations.items())
        texts = [f"{place}metadata.annotations[{name}]: {fault}" for name, fault in faults if fault]
        text = "; ".join(texts) or str(error)
        raise InjectionError(f"{document.get('kind')} {_name(document, template)}: {text}") from error


def _injected(pod: Plain, owner: WorkloadOwner, injector: FileInjector) -> Plain:
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    refuse_wrong(annotations)
    override = annotations.get(PROXY_CONFIG)
    proxy_config = (
        apply_override(injector.mesh.default_config, override) if override is not None else injector.mesh.default_config
    )
    mesh = injector.mesh
    return inject(
        InjectionRequest(
            pod,
            owner,
            injector.config,
            mesh,
            proxy_config,
            injector.revision,
            {},
            injector.native,
            compliance_policy=injector.compliance_policy,
        )
    )


def _place(document: Plain) -> tuple[str, ...]:
    """Return the path of the Pod template in a workload."""
    return PLACES.get(document["kind"], ("spec", "jobTemplate", "spec", "template"))


def _metadata_place(document: Plain) -> tuple[str, ...]:
    """Return the path of the object with the metadata of a workload's Pods."""
    return PLACES.get(document["kind"], ("spec", "jobTemplate"))


def has_workloads(document: Any) -> bool:
    """Return whether a document contains a workload, also if it is in a List."""
    if not isinstance(document, dict):
        return False
    if document.get("kind") == "List":
        return any(map(has_workloads, document.get("items") or ()))
    return document.get("kind") == "CronJob" or document.get("kind") in PLACES


def _why_not(pod: Plain, injector: FileInjector) -> str:
    if (pod.get("spec") or {}).get("hostNetwork"):
        return "host networking enabled"
    return "" if is_injected(pod, _ASKED) else "sidecar injection disabled"


def _owner(document: Plain) -> WorkloadOwner:
    """Return the workload in a document. For a Pod, return the workload that owns it."""
    if document.get("kind") == "Pod":
        return owner_of(document)
    metadata = document.get("metadata") or {}
    return WorkloadOwner(
        document["kind"], document.get("apiVersion") or "", metadata.get("name") or "", metadata.get("namespace") or ""
    )


def _name(document: Plain, template: Plain) -> str:
    metadata = document.get("metadata") or {}
    name = (template.get("metadata") or {}).get("name") or metadata.get("name") or ""
    return "/".join(filter(None, (metadata.get("namespace"), name)))


def inject_documents(documents: list[Any], injector: FileInjector, warn: Warn) -> Iterator[Any]:
    """Yield the documents with their workloads injected."""
    for document in documents:
        yield inject_document(document, injector, warn)
