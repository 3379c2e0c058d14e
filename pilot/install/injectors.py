"""Injection webhooks: conflicts between their configurations, and their deactivation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pilot.install.installation_labels import DEFAULT, REVISION, TAG
from pilot.kube.object_client import VersionedKind

Plain = dict[str, Any]
Labels = Mapping[str, str]
MUTATING = VersionedKind("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")
VALIDATING = VersionedKind("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
DEFAULT_TAG = "istio-revision-tag-default"
NEVER = {"matchLabels": {"istio.io/deactivated": "never-match"}}
_SUFFIX = "sidecar-injector.istio.io"
_NAMESPACE_LABEL, _POD_LABEL = "istio-injection", "sidecar.istio.io/inject"


def is_injector(plain: Plain) -> bool:
    """Return whether an object is a configuration of injection webhooks."""
    return plain["kind"] == MUTATING.name and any(w["name"].endswith(_SUFFIX) for w in plain.get("webhooks") or ())


def revision_of(plain: Plain) -> str:
    """Return the revision in an object's labels."""
    return str((plain["metadata"].get("labels") or {}).get(REVISION) or DEFAULT)


def tag_of(plain: Plain) -> str:
    """Return the tag in an object's labels, or "" if the object belongs to a revision."""
    return str((plain["metadata"].get("labels") or {}).get(TAG) or "")


def deactivated(plain: Plain) -> Plain:
    """Return the webhook configuration, changed so that it never matches."""
    return {
        **plain,
        "webhooks": [{**w, "namespaceSelector": NEVER, "objectSelector": NEVER} for w in plain.get("webhooks") or ()],
    }


def injection_conflicts(planned: Iterable[Plain], existing: Iterable[Plain]) -> list[str]:
    """Return a message for each planned webhook configuration that would inject the same pods as an existing one."""
    conflicts = []
    existing_injectors = [plain for plain in existing if is_injector(plain)]
    for one in filter(is_injector, planned):
        for other in existing_injectors:
            example = next(iter(_conflicting_pods(one, other)), None)
            if example:
                conflicts.append(
                    f"{one['metadata']['name']} and {other['metadata']['name']} (revision {revision_of(other)}) "
                    f"would both inject {example}"
                )
    return conflicts


def _conflicting_pods(one: Plain, other: Plain) -> Iterator[str]:
    """Yield descriptions of the pods that both configurations inject."""
    revisions: list[str | None] = [None, *sorted(_selected_revisions(one) | _selected_revisions(other))]
    for namespace_switch, namespace_revision, pod_switch, pod_revision in itertools.product(
        (None, "enabled", "disabled"), revisions, (None, "true", "false"), revisions
    ):
        namespace = _without_none(
            {_NAMESPACE_LABEL: namespace_switch, REVISION: namespace_revision, "kubernetes.io/metadata.name": "any"}
        )
        pod = _without_none({_POD_LABEL: pod_switch, REVISION: pod_revision})
        if _injects(one, namespace, pod) and _injects(other, namespace, pod):
            visible = {key: value for key, value in namespace.items() if not key.startswith("kubernetes.io/")}
            yield f"pods {_describe_labels(pod)} in namespaces {_describe_labels(visible)}"


def _without_none(labels: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if value is not None}


def _describe_labels(labels: Labels) -> str:
    if not labels:
        return "without injection labels"
    return "labelled " + ", ".join(f"{key}={value}" for key, value in labels.items())


def _selected_revisions(plain: Plain) -> set[str]:
    """Return the revisions in the selectors of a webhook configuration."""
    selectors = [
        w.get(name) or {} for w in plain.get("webhooks") or () for name in ("namespaceSelector", "objectSelector")
    ]
    in_expressions = {
        value
        for s in selectors
        for e in s.get("matchExpressions") or ()
        if e.get("key") == REVISION
        for value in e.get("values") or ()
    }
    return in_expressions | {s["matchLabels"][REVISION] for s in selectors if REVISION in (s.get("matchLabels") or {})}


def _injects(plain: Plain, namespace: Labels, pod: Labels) -> bool:
    return any(
        w["name"].endswith(_SUFFIX)
        and selects(w.get("namespaceSelector") or {}, namespace)
        and selects(w.get("objectSelector") or {}, pod)
        for w in plain["webhooks"]
    )


def selects(selector: Plain, labels: Labels) -> bool:
    """Return whether a label selector matches labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        value, values = labels.get(expression["key"]), expression.get("values") or ()
        matches = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not matches.get(expression["operator"], False):
            return False
    return True
