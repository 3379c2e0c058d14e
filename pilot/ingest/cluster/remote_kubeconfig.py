"""Parses untrusted kubeconfigs.

Users who may write Secrets must not be able to run programs or read files in the control plane.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import yaml

from pilot.kube.api_access import Kubeconfig
from pilot.kube.api_errors import ConfigurationError

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
    """Parse a kubeconfig. Raise ConfigurationError if it is invalid or uses a forbidden option.

    Options that run programs, read files or skip verification are forbidden unless they are in `allowed`.
    """
    try:
        plain = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"the kubeconfig is not valid YAML: {error}") from error
    if not isinstance(plain, dict):
        raise ConfigurationError("the kubeconfig must be a mapping")
    for section, inner in (("users", "user"), ("clusters", "cluster")):
        for entry in _entries(plain, section, inner):
            _check(entry, allowed)
    return Kubeconfig(plain)


def _entries(plain: Mapping[str, Any], section: str, inner: str) -> list[Mapping[str, Any]]:
    entries = plain.get(section) or []
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get(inner) or {}, dict) for entry in entries
    ):
        raise ConfigurationError(f"{section} in the kubeconfig must be a list of mappings")
    return [entry.get(inner) or {} for entry in entries]


def _check(entry: Mapping[str, Any], allowed: Collection[str]) -> None:
    for option, field in _OPTIONS.items():
        if entry.get(field) and option not in allowed:
            raise ConfigurationError(
                f"the kubeconfig uses {field}, which is not allowed unless {VARIABLE} names {option}"
            )
