"""Checks the versions of installed CustomResourceDefinitions."""

from __future__ import annotations

import re

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObjects
from pilot.cli.ctl.analyzers.analyzer import DEFINITION, Analyzer, Reports
from pilot.config.problem import warning

BUNDLE_VERSION = "gateway.networking.k8s.io/bundle-version"
_MINIMUM = {
    "grpcroutes.gateway.networking.k8s.io": (1, 1, 0),
    "backendtlspolicies.gateway.networking.k8s.io": (1, 4, 0),
    "tlsroutes.gateway.networking.k8s.io": (1, 5, 0),
    "tcproutes.gateway.networking.k8s.io": (1, 6, 0),
}
"""The versions of the Gateway API from which istiod reads the kinds."""
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})", re.ASCII)
_REMOVED = frozenset(("ClusterRbacConfig", "RbacConfig", "ServiceRole", "ServiceRoleBinding"))


def _check_versions(objects: AnalyzedObjects) -> Reports:
    for one in objects.of(DEFINITION.id):
        minimum, version = _MINIMUM.get(one.name), _VERSION.match(one.annotations.get(BUNDLE_VERSION, ""))
        if minimum is not None and version is not None and tuple(map(int, version.groups())) < minimum:
            text = (
                f"the version of the Gateway API is {version[0]}, but istiod reads this kind from "
                f"{'.'.join(map(str, minimum))}; upgrade the CustomResourceDefinitions"
            )
            yield one, warning("definition-too-old", f"metadata.annotations[{BUNDLE_VERSION}]", text)


def _check_removed(objects: AnalyzedObjects) -> Reports:
    for one in objects.of(DEFINITION.id):
        name = one.value("spec", "names", "kind")
        if one.value("spec", "group") == "rbac.istio.io" and name in _REMOVED:
            yield one, warning("kind-removed", "spec.names.kind", f"{name} was removed from Istio and has no effect")


DEFINITION_VERSIONS = Analyzer("k8sgateway.CRDVersionAnalyzer", (DEFINITION,), _check_versions)
REMOVED_KINDS = Analyzer("deprecation.DeprecationAnalyzer", (DEFINITION,), _check_removed)
