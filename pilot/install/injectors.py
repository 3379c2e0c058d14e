"""Webhooks of injection: which of them would inject the same pods, and how one is put out of action."""

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
_ENABLED, _ASKED = "istio-injection", "sidecar.istio.io/inject"


def is_injector(plain: Plain) -> bool:
    """Returns whether an object has webhooks of injection."""
    return plain["kind"] == MUTATING.name and any(w["name"].endswith(_SUFFIX) for w in plain.get("webhooks") or ())


def revision_of(plain: Plain) -> str:
    """Returns the revision that an object is of."""
    return str((plain["metadata"].get("labels") or {}).get(REVISION) or DEFAULT)


def tag_of(plain: Plain) -> str:
    """Returns the tag that a configuration of webhooks is for, "" for that of a revision."""
    return str((plain["metadata"].get("labels") or {}).get(TAG) or "")


def deactivated(plain: Plain) -> Plain:
    """Returns a configuration whose webhooks are called for nothing."""
    return {
        **plain,
        "webhooks": [{**w, "namespaceSelector": NEVER, "objectSelector": NEVER} for w in plain.get("webhooks") or ()],
    }


def injection_conflicts(ours: Iterable[Plain], others: Iterable[Plain]) -> list[str]:
    """Returns where two configurations would both inject, a sentence for each pair. `others` are those that stay beside ours."""
    found = []
    there = [plain for plain in others if is_injector(plain)]
    for one in filter(is_injector, ours):
        for other in there:
            where = next((said for said in _cases(one, other)), None)
            if where:
                found.append(
                    f"{one['metadata']['name']} and {other['metadata']['name']} (revision {revision_of(other)}) would both inject {where}"
                )
    return found


def _cases(one: Plain, other: Plain) -> Iterator[str]:
    """Yields the pods that two configurations both inject."""
    revisions: list[str | None] = [None, *sorted(_revisions(one) | _revisions(other))]
    for switch, of_namespace, asked, of_pod in itertools.product(
        (None, "enabled", "disabled"), revisions, (None, "true", "false"), revisions
    ):
        namespace = _labels({_ENABLED: switch, REVISION: of_namespace, "kubernetes.io/metadata.name": "any"})
        pod = _labels({_ASKED: asked, REVISION: of_pod})
        if _injects(one, namespace, pod) and _injects(other, namespace, pod):
            shown = {key: value for key, value in namespace.items() if not key.startswith("kubernetes.io/")}
            yield f"pods labelled {_said(pod)} in namespaces labelled {_said(shown)}"


def _labels(found: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in found.items() if value is not None}


def _said(labels: Labels) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items()) or "with neither"


def _revisions(plain: Plain) -> set[str]:
    """Returns the revisions that the selectors of a configuration name."""
    selectors = [
        w.get(name) or {} for w in plain.get("webhooks") or () for name in ("namespaceSelector", "objectSelector")
    ]
    named = {
        value
        for s in selectors
        for e in s.get("matchExpressions") or ()
        if e.get("key") == REVISION
        for value in e.get("values") or ()
    }
    return named | {s["matchLabels"][REVISION] for s in selectors if REVISION in (s.get("matchLabels") or {})}


def _injects(plain: Plain, namespace: Labels, pod: Labels) -> bool:
    return any(
        w["name"].endswith(_SUFFIX)
        and selects(w.get("namespaceSelector") or {}, namespace)
        and selects(w.get("objectSelector") or {}, pod)
        for w in plain["webhooks"]
    )


def selects(selector: Plain, labels: Labels) -> bool:
    """Returns whether a label selector selects what has some labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        value, values = labels.get(expression["key"]), expression.get("values") or ()
        fits = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not fits.get(expression["operator"], False):
            return False
    return True
