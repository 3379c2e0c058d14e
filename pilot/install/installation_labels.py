"""The labels by which the objects of an installation are found again: there is no other record of it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from deploy.operator.errors import SettingsError
from pilot.lib.build_info import build_info

Plain = dict[str, Any]
MANAGED = "operator.istio.io/managed"
COMPONENT = "operator.istio.io/component"
VERSION = "operator.istio.io/version"
OWNER = "install.operator.istio.io/owning-resource"
OWNER_NAMESPACE = f"{OWNER}-namespace"
NOT_PRUNED = f"{OWNER}-not-pruned"
REVISION = "istio.io/rev"
TAG = "istio.io/tag"
DEFAULT = "default"
UNKNOWN = "unknown"
_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


class OperatorOwner(NamedTuple):
    """Whose an object is: the name and namespace of an IstioOperator, and the revision that it installs."""

    name: str
    namespace: str
    revision: str

    def labels(self) -> dict[str, str]:
        """Returns the labels that all of its objects have."""
        return {
            OWNER: self.name,
            **({OWNER_NAMESPACE: self.namespace} if self.namespace else {}),
            REVISION: self.revision,
        }

    def selector(self) -> str:
        """Returns what selects its objects."""
        none = [] if self.namespace else [f"!{OWNER_NAMESPACE}"]
        return ",".join([COMPONENT, *(f"{key}={value}" for key, value in self.labels().items()), *none])


def owner_of(operator: Plain) -> OperatorOwner:
    """Returns the owner of what an IstioOperator, with its profile, installs. SettingsError where its name cannot be a label."""
    metadata = operator.get("metadata") or {}
    name = str(metadata.get("name") or UNKNOWN)
    if not _VALUE.fullmatch(name):
        raise SettingsError(
            f"metadata.name: {name} cannot be the value of a label: write at most 63 letters, digits, -, _ and ."
        )
    revision = ((operator.get("spec") or {}).get("values") or {}).get("revision")
    return OperatorOwner(name, str(metadata.get("namespace") or ""), str(revision or DEFAULT))


def with_ownership_labels(plain: Plain, owner: OperatorOwner, component: str) -> Plain:
    """Returns an object as it is put into a cluster."""
    metadata = plain["metadata"]
    labels = {
        **(metadata.get("labels") or {}),
        COMPONENT: component,
        MANAGED: "Reconcile",
        VERSION: build_info().version,
        **owner.labels(),
    }
    return {**plain, "metadata": {**metadata, "labels": labels}}
