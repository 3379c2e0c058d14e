"""The IstioOperator custom resource."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from deploy.operator.settings_tree import value_at
from pilot.kube.object_client import ResourceKey, VersionedKind

Plain = dict[str, Any]
KIND = VersionedKind("install.istio.io/v1alpha1", "IstioOperator")
FINALIZER = "istio-finalizer.install.istio.io"
IGNORE = "install.istio.io/ignoreReconcile"


class IstioOperatorResource(NamedTuple):
    """An IstioOperator. `plain` is the complete object."""

    namespace: str
    name: str
    uid: str
    generation: int
    is_deleted: bool
    plain: Plain

    @property
    def key(self) -> ResourceKey:
        """Return the key of the object."""
        return ResourceKey(KIND, self.namespace, self.name)

    @property
    def spec_version(self) -> tuple[str, int]:
        """Return a value that changes whenever the spec changes.

        The generation alone is not sufficient, because it starts at 1 again if the object is deleted and recreated.
        """
        return self.uid, self.generation

    @property
    def revision(self) -> str:
        """Return the revision that the IstioOperator installs, or "" for the default."""
        return str(value_at(self.plain, "spec.revision") or "")

    @property
    def finalizers(self) -> list[str]:
        """Return the finalizers of the object."""
        return list(self.plain["metadata"].get("finalizers") or ())

    def is_managed_by(self, revision: str) -> bool:
        """Return whether an operator for a revision reconciles the object. The revision "" stands for all revisions."""
        annotations = self.plain["metadata"].get("annotations") or {}
        return (not revision or revision == self.revision) and annotations.get(IGNORE) != "true"

    def settings(self) -> Plain:
        """Return the content of the equivalent settings file."""
        spec: Any = self.plain.get("spec")
        metadata = {"name": self.name, "namespace": self.namespace}
        return {
            "apiVersion": KIND.api_version,
            "kind": KIND.name,
            "metadata": metadata,
            "spec": {} if spec is None else spec,
        }


def istio_operator_of(plain: Plain) -> IstioOperatorResource:
    """Return an object as an IstioOperatorResource."""
    metadata = plain["metadata"]
    return IstioOperatorResource(
        metadata.get("namespace", ""),
        metadata["name"],
        metadata.get("uid", ""),
        metadata.get("generation") or 0,
        bool(metadata.get("deletionTimestamp")),
        plain,
    )


def decode_istio_operator(raw: bytes) -> IstioOperatorResource:
    """Return an object in JSON as an IstioOperatorResource."""
    return istio_operator_of(msgspec.json.decode(raw))
