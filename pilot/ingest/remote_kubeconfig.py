"""Kubeconfigs of other clusters, as Secrets bring them: who may write Secrets must not run programs or read files here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import yaml

from pilot.kube.access import Kubeconfig
from pilot.kube.errors import ConfigurationError

_OPTIONS = {
    "exec": "exec",
    "authProvider": "auth-provider",
    "clientCertificate": "client-certificate",
    "clientKey": "client-key",
    "tokenFile": "tokenFile",
    "certificateAuthority": "certificate-authority",
    "insecureSkipTLSVerify": "insecure-skip-tls-verify",
}
VARIABLE = "PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS"


def read_kubeconfig(data: bytes, allowed: Collection[str] = ()) -> Kubeconfig:
    """Returns the access that a kubeconfig gives. ConfigurationError where it is none, or asks for what is not allowed: of the options that
    run programs, read files or skip verification only those are taken that `allowed` names."""
    try:
        plain = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"the kubeconfig is no YAML: {error}") from error
    if not isinstance(plain, dict):
        raise ConfigurationError("the kubeconfig is no mapping")
    for section, inner in (("users", "user"), ("clusters", "cluster")):
        for entry in _entries(plain, section, inner):
            _check(entry, allowed)
    return Kubeconfig(plain)


def _entries(plain: Mapping[str, Any], section: str, inner: str) -> list[Mapping[str, Any]]:
    found = plain.get(section) or []
    if not isinstance(found, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get(inner) or {}, dict) for entry in found
    ):
        raise ConfigurationError(f"the kubeconfig's {section} are no list of {section}")
    return [entry.get(inner) or {} for entry in found]


def _check(entry: Mapping[str, Any], allowed: Collection[str]) -> None:
    for option, field in _OPTIONS.items():
        if entry.get(field) and option not in allowed:
            raise ConfigurationError(
                f"the kubeconfig uses {field}, which is not allowed unless {VARIABLE} names {option}"
            )
