"""Pod templates of workloads such as Deployments, which control planes do not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pilot.config.group_kind import GroupKind
from pilot.config.kubernetes.pod import Pod
from pilot.config.object import Object
from pilot.config.problem import ObjectRef
from pilot.ingest import shape
from pilot.ingest.decode import listed_objects

_TEMPLATE = ("spec", "template")
_PATHS: Mapping[GroupKind, tuple[str, ...]] = {
    **{GroupKind("apps", name): _TEMPLATE for name in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")},
    GroupKind("", "ReplicationController"): _TEMPLATE,
    GroupKind("batch", "Job"): _TEMPLATE,
    GroupKind("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    GroupKind("", "Pod"): (),
}
"""The path of the Pod template in each kind."""


def pod_templates(document: object) -> Iterator[tuple[ObjectRef, Object[Pod]]]:
    """Yield the Pod templates in a document, with the objects that contain them.

    A Pod that has not run, and therefore has no status, is its own template. Templates that are not valid are ignored.
    """
    for _, plain in listed_objects(document, ""):
        template = _template(plain)
        if template is not None:
            yield template.ref, template


def _template(plain: Any) -> Object[Pod] | None:
    metadata = _mapping(_mapping(plain).get("metadata"))
    name, namespace = metadata.get("name"), metadata.get("namespace") or "default"
    kind = GroupKind(str(_mapping(plain).get("apiVersion")).rpartition("/")[0], str(_mapping(plain).get("kind")))
    if kind not in _PATHS or not isinstance(name, str) or not isinstance(namespace, str) or _has_run(kind, plain):
        return None
    value = plain
    for field in _PATHS[kind]:
        value = _mapping(value).get(field)
    spec, _ = shape.decode(_mapping(_mapping(value).get("spec")), Pod)
    labels = _mapping(_mapping(_mapping(value).get("metadata")).get("labels"))
    texts = {key: text for key, text in labels.items() if isinstance(key, str) and isinstance(text, str)}
    return Object(kind, namespace, name, spec, texts) if spec is not None else None


def _has_run(kind: GroupKind, plain: Mapping[str, Any]) -> bool:
    return kind.name == "Pod" and bool(plain.get("status"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
