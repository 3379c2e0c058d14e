"""The labels that identify the objects of an installation. The installation has no other record."""

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
ROOTS = "istio.io/config=true"
"""Selects the ConfigMaps with roots that a control plane writes into all namespaces."""
DEFAULT = "default"
UNKNOWN = "unknown"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


class OperatorOwner(NamedTuple):
    """The owner of an object: the name and namespace of an IstioOperator, and the revision that it installs."""

    name: str
    namespace: str
    revision: str

    def labels(self) -> dict[str, str]:
        """Return the labels that all objects of the owner have."""
        return {
            OWNER: self.name,
            **({OWNER_NAMESPACE: self.namespace} if self.namespace else {}),
            REVISION: self.revision,
        }

    def selector(self) -> str:
        """Return the label selector for the objects of the owner."""
        without_namespace = [] if self.namespace else [f"!{OWNER_NAMESPACE}"]
        return ",".join([COMPONENT, *(f"{key}={value}" for key, value in self.labels().items()), *without_namespace])


def owner_of(operator: Plain) -> OperatorOwner:
    """Return the owner of the objects that an IstioOperator installs.

    Raises SettingsError if its name is not a valid label value.
    """
    metadata = operator.get("metadata") or {}
    name = str(metadata.get("name") or UNKNOWN)
    if not _LABEL_VALUE.fullmatch(name):
        raise SettingsError(
            f"metadata.name: {name} is not a valid label value; use at most 63 letters, digits, -, _ and ."
        )
    revision = ((operator.get("spec") or {}).get("values") or {}).get("revision")
    return OperatorOwner(name, str(metadata.get("namespace") or ""), str(revision or DEFAULT))


def with_ownership_labels(plain: Plain, owner: OperatorOwner, component: str) -> Plain:
    """Return an object with the labels of its owner and component."""
    metadata = plain["metadata"]
    labels = {
        **(metadata.get("labels") or {}),
        COMPONENT: component,
        MANAGED: "Reconcile",
        VERSION: build_info().version,
        **owner.labels(),
    }
    return {**plain, "metadata": {**metadata, "labels": labels}}
