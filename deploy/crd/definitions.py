"""The CustomResourceDefinitions of Istio's kinds, which are those of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from deploy.crd.schema import OPEN, Schema, schema_of
from pilot.config.catalogue import CATALOGUE, Catalogue, Kind
from pilot.config.group_kind import GroupKind, plural_of

Plain = dict[str, Any]


class ServedDefinition(NamedTuple):
    """What an API server must know of a kind: versions, the one that objects are stored in first, and the schema of `spec`."""

    id: GroupKind
    versions: tuple[str, ...]
    spec: Schema
    needs_spec: bool = False


class Column(NamedTuple):
    """A column of what `kubectl get` prints."""

    name: str
    path: str
    about: str
    type: str = "string"


EXTENSIONS = "extensions.istio.io"
_STORED = {"Telemetry": "v1alpha1"}
_NEED_SPEC = frozenset({"ServiceEntry", "WorkloadEntry", "WorkloadGroup", "WasmPlugin", "TrafficExtension"})
_SHORT = {
    "DestinationRule": "dr",
    "Gateway": "gw",
    "ServiceEntry": "se",
    "VirtualService": "vs",
    "WorkloadEntry": "we",
    "WorkloadGroup": "wg",
    "AuthorizationPolicy": "ap",
    "PeerAuthentication": "pa",
    "RequestAuthentication": "ra",
    "Telemetry": "telemetry",
}
_AGE = Column("Age", ".metadata.creationTimestamp", "When the object was made.", "date")
_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "DestinationRule": (Column("Host", ".spec.host", "The service that the rule is about."), _AGE),
    "ServiceEntry": (
        Column("Hosts", ".spec.hosts", "The names of the service."),
        Column("Location", ".spec.location", "Whether its workloads are of the mesh."),
        Column("Resolution", ".spec.resolution", "How its addresses are found."),
        _AGE,
    ),
    "VirtualService": (
        Column("Gateways", ".spec.gateways", "Where the routes apply."),
        Column("Hosts", ".spec.hosts", "The names that are routed."),
        _AGE,
    ),
    "WorkloadEntry": (_AGE, Column("Address", ".spec.address", "Where the workload is.")),
    "AuthorizationPolicy": (Column("Action", ".spec.action", "What is done to a request that a rule matches."), _AGE),
    "PeerAuthentication": (Column("Mode", ".spec.mtls.mode", "Which connections are taken."), _AGE),
}


def definitions(catalogue: Catalogue = CATALOGUE) -> list[Plain]:
    """Returns the definitions of all kinds of groups of Istio, by name."""
    found = (_definition(_served(kind)) for kind in catalogue if kind.id.group.endswith(".istio.io"))
    return sorted(found, key=lambda definition: str(definition["metadata"]["name"]))


def _served(kind: Kind) -> ServedDefinition:
    first = _STORED.get(kind.id.name, kind.versions[0])
    versions = (first, *(v for v in kind.versions if v != first))
    return ServedDefinition(kind.id, versions, schema_of(kind.spec, without=kind.parts), kind.id.name in _NEED_SPEC)


def _definition(kind: ServedDefinition) -> Plain:
    name, group = kind.id.name, kind.id.group
    names: Plain = {
        "categories": ["istio-io", group.replace(".", "-").removesuffix("-istio-io") + "-istio-io"],
        "kind": name,
        "listKind": f"{name}List",
        "plural": plural_of(kind.id),
        "singular": name.lower(),
    }
    if name in _SHORT:
        names["shortNames"] = [_SHORT[name]]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": _versions(kind)},
    }


def _versions(kind: ServedDefinition) -> list[Plain]:
    """Returns the versions by name, all with one schema, as objects are the same in all of them."""
    whole: Plain = {"type": "object", "properties": {"spec": kind.spec, "status": OPEN}}
    if kind.needs_spec:
        whole["required"] = ["spec"]
    columns = [
        {"name": c.name, "type": c.type, "jsonPath": c.path, "description": c.about}
        for c in _COLUMNS.get(kind.id.name, (_AGE,))
    ]
    return [
        {
            "name": version,
            "served": True,
            "storage": version == kind.versions[0],
            "subresources": {"status": {}},
            "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": whole},
        }
        for version in sorted(kind.versions)
    ]
