"""One IstioOperator as an API server has it."""

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
    """`generation` counts the changes of its specification, and begins anew with another `uid`: that of one that was deleted and made again.
    `plain` is all of it."""

    namespace: str
    name: str
    uid: str
    generation: int
    leaving: bool
    plain: Plain

    @property
    def key(self) -> ResourceKey:
        """Returns which object it is."""
        return ResourceKey(KIND, self.namespace, self.name)

    @property
    def specification(self) -> tuple[str, int]:
        """Returns what is another one where what it says may be something else."""
        return self.uid, self.generation

    @property
    def revision(self) -> str:
        """Returns the revision that it installs, "" for none."""
        return str(value_at(self.plain, "spec.revision") or "")

    @property
    def finalizers(self) -> list[str]:
        """Returns what must happen before it can go."""
        return list(self.plain["metadata"].get("finalizers") or ())

    def is_for(self, revision: str) -> bool:
        """Returns whether an operator of a revision, "" for any, looks after it."""
        return (not revision or revision == self.revision) and (self.plain["metadata"].get("annotations") or {}).get(
            IGNORE
        ) != "true"

    def settings(self) -> Plain:
        """Returns what it says, as a file would."""
        spec: Any = self.plain.get("spec")
        metadata = {"name": self.name, "namespace": self.namespace}
        return {
            "apiVersion": KIND.api_version,
            "kind": KIND.name,
            "metadata": metadata,
            "spec": {} if spec is None else spec,
        }


def istio_operator_of(plain: Plain) -> IstioOperatorResource:
    """Returns the IstioOperator of an object."""
    metadata = plain["metadata"]
    leaving = bool(metadata.get("deletionTimestamp"))
    return IstioOperatorResource(
        metadata.get("namespace", ""),
        metadata["name"],
        metadata.get("uid", ""),
        metadata.get("generation") or 0,
        leaving,
        plain,
    )


def decode_istio_operator(raw: bytes) -> IstioOperatorResource:
    """Returns the IstioOperator of a JSON text."""
    return istio_operator_of(msgspec.json.decode(raw))
