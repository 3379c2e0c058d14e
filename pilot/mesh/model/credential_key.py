"""Keys of credentials, parsed from `credentialName` fields and from the names of SDS resources."""

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
    """Key of the object that contains a credential.

    A proxy may read a `gateway Secret` only if a Gateway refers to it.
    """

    source: CredentialSource
    namespace: str
    name: str

    @property
    def is_roots(self) -> bool:
        """Return True if the name denotes root certificates, which are public.

        Other names denote a certificate and its private key.
        """
        return self.source == "ConfigMap" or self.name.endswith(CA_SUFFIX)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the objects to read, in order of precedence.

        Root certificates may be in an object of their own, or in the same object as the certificate.
        """
        plain = self.name.removesuffix(CA_SUFFIX)
        return (self.name,) if plain == self.name or not plain else (self.name, plain)


def parse_resource(text: str, namespace: str) -> CredentialKey | None:
    """Return the key for an SDS resource that a proxy in `namespace` requests, or None if its name is invalid."""
    for scheme, source in _SOURCES.items():
        if text.startswith(scheme):
            parts = text.removeprefix(scheme).split("/")
            if len(parts) == 1 and source != "gateway Secret":
                parts = [namespace, *parts]
            return CredentialKey(source, *parts) if len(parts) == 2 and all(parts) else None
    return None


def parse_field(text: str, namespace: str) -> CredentialKey | None:
    """Return the key for a `credentialName` used in a namespace, or None if the control plane does not serve it."""
    return parse_resource(text if "://" in text else KUBERNETES + text, namespace)
