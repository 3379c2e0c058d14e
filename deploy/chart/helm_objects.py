"""Built-in objects that templates can access: the release, the chart's files, and the capabilities of the cluster."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

from gotemplate.values import GoStruct

KUBERNETES = "v1.33.0"
"""The Kubernetes version that templates see. It is constant, so that the output does not depend on a cluster."""


class Files(GoStruct):
    """The files of a chart that are not templates."""

    type_name = "engine.files"

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def member(self, name: str) -> Any:
        return {
            "AsConfig": "\n".join(
                f"{path.rpartition('/')[2]}: |\n{_indented(text)}" for path, text in self._texts.items()
            )
        }[name]

    def method(self, name: str) -> Callable[..., Any] | None:
        """Return the method Get, Lines or Glob.

        Get returns the content of a file, or "" if it does not exist. Glob returns the files that match a pattern.
        """
        return {
            "Get": lambda path: self._texts.get(path, ""),
            "Lines": lambda path: self._texts.get(path, "").removesuffix("\n").split("\n"),
            "Glob": lambda pattern: Files(
                {path: text for path, text in self._texts.items() if fnmatch.fnmatch(path, pattern)}
            ),
        }.get(name)


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


class Versions(GoStruct):
    """The API versions that templates see. Every supported cluster has them."""

    type_name = "chartutil.VersionSet"
    _KNOWN = frozenset(
        {
            "v1",
            "apps/v1",
            "autoscaling/v2",
            "policy/v1",
            "rbac.authorization.k8s.io/v1",
            "discovery.k8s.io/v1",
            "admissionregistration.k8s.io/v1",
            "apiextensions.k8s.io/v1",
            "networking.k8s.io/v1",
        }
    )

    def method(self, name: str) -> Callable[..., Any] | None:
        return (lambda version: version in self._KNOWN) if name == "Has" else None


def capabilities() -> dict[str, Any]:
    """Return the object `.Capabilities`."""
    major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
    version = {"Version": KUBERNETES, "GitVersion": KUBERNETES, "Major": major, "Minor": minor}
    return {"KubeVersion": version, "APIVersions": Versions(), "HelmVersion": {"Version": "v3"}}


def release(name: str, namespace: str) -> dict[str, Any]:
    """Return the object `.Release` for an initial installation.

    Its Service is Helm, so that the rendered objects equal those that Helm renders.
    """
    return {
        "Name": name,
        "Namespace": namespace,
        "Service": "Helm",
        "IsInstall": True,
        "IsUpgrade": False,
        "Revision": 1,
    }
