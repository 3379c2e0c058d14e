"""Identifiers of kinds. They include the API group because names are ambiguous: two kinds are called Gateway."""

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
    """A kind. `group` is "" for Kubernetes' core kinds, and for pseudo-kinds such as the mesh config and proxies."""

    group: str
    name: str

    def __str__(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name


def parse_kind(text: str) -> GroupKind:
    """Parse the string form of a GroupKind."""
    group, _, name = text.rpartition("/")
    return GroupKind(group, name)


def plural_of(kind: GroupKind) -> str:
    """Return the plural name of a kind as it appears in API paths, such as `gateways` or `ingresses`."""
    word = kind.name.lower()
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith("s") else "s")


def is_istio(group: str) -> bool:
    """Return whether an API group is one of Istio's."""
    return group.endswith(".istio.io")
