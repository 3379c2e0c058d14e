"""Kinds are named by API group and name together, because groups use the same names (two kinds are called Gateway)."""

from __future__ import annotations

from typing import NamedTuple

EXTENSIONS = "extensions.istio.io"
MULTICLUSTER = "multicluster.x-k8s.io"
NETWORKING = "networking.istio.io"
SECURITY = "security.istio.io"
GATEWAY_API = "gateway.networking.k8s.io"
EXPERIMENTAL_GATEWAY_API = "gateway.networking.x-k8s.io"
INFERENCE = "inference.networking.k8s.io"


class GroupKind(NamedTuple):
    """`group` is "" for Kubernetes' core kinds, and for what is no API object (the mesh config, proxies)."""

    group: str
    name: str

    def __str__(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name


def parse_kind(text: str) -> GroupKind:
    """Returns the kind whose text this is."""
    group, _, name = text.rpartition("/")
    return GroupKind(group, name)


def plural_of(kind: GroupKind) -> str:
    """Returns the name of a kind in the paths of an API server, such as `gateways`, `ingresses` and `authorizationpolicies`."""
    word = kind.name.lower()
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith("s") else "s")


def is_istio(group: str) -> bool:
    """Return whether an API group is one of Istio's."""
    return group.endswith(".istio.io")
