"""The names of credentials: what a Gateway or DestinationRule calls one, and what a proxy asks for it by."""

from __future__ import annotations

from typing import Literal, NamedTuple

CredentialSource = Literal["Secret", "gateway Secret", "ConfigMap"]

CA_SUFFIX = "-cacert"
KUBERNETES, GATEWAY_SECRET, CONFIG_MAP_PREFIX = "kubernetes://", "kubernetes-gateway://", "configmap://"
_SOURCES: dict[str, CredentialSource] = {
    KUBERNETES: "Secret",
    GATEWAY_SECRET: "gateway Secret",
    CONFIG_MAP_PREFIX: "ConfigMap",
}


class CredentialKey(NamedTuple):
    """An object that holds a credential. A `gateway Secret` is one that a Gateway has to refer to before its proxies may read it."""

    source: CredentialSource
    namespace: str
    name: str

    @property
    def is_roots(self) -> bool:
        """Returns whether the name alone says that roots are meant, which are public, and not a certificate with its private key."""
        return self.source == "ConfigMap" or self.name.endswith(CA_SUFFIX)

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the objects to look for, the first of which counts: roots may be in an object of their own, or beside the certificate."""
        plain = self.name.removesuffix(CA_SUFFIX)
        return (self.name,) if plain == self.name or not plain else (self.name, plain)


def parse_resource(text: str, namespace: str) -> CredentialKey | None:
    """Returns what the name of an SDS resource means to a proxy of a namespace; None where it means nothing."""
    for scheme, source in _SOURCES.items():
        if text.startswith(scheme):
            parts = text.removeprefix(scheme).split("/")
            if len(parts) == 1 and source != "gateway Secret":
                parts = [namespace, *parts]
            return CredentialKey(source, *parts) if len(parts) == 2 and all(parts) else None
    return None


def parse_field(text: str, namespace: str) -> CredentialKey | None:
    """Returns what a `credentialName` means to a proxy of a namespace; None for one that does not come from the control plane."""
    return parse_resource(text if "://" in text else KUBERNETES + text, namespace)
