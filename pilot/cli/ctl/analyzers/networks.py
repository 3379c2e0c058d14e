"""Checks that the clusters that meshNetworks names exist."""

from __future__ import annotations

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObjects, mapping, mappings
from pilot.cli.ctl.analyzers.analyzer import CLUSTER_SECRET, INJECTOR_CONFIG, Analyzer, Reports
from pilot.config.problem import error
from pilot.ingest.files.documents import SyntaxFault, read_document

_OWN = "Kubernetes"


def _check(objects: AnalyzedObjects) -> Reports:
    """Yield a problem for each registry that is neither a cluster with a Secret nor the local one."""
    clusters = {_OWN}
    for secret in objects.of(CLUSTER_SECRET.id):
        if secret.labels.get("istio/multiCluster") == "true":
            clusters |= secret.part("data").keys() | secret.part("stringData").keys()
    for one in objects.of(INJECTOR_CONFIG.id):
        text = one.value("data", "meshNetworks")
        if not isinstance(text, str):
            continue
        try:
            networks = mapping(mapping(read_document(text.encode(), "").plain).get("networks"))
        except SyntaxFault:
            continue
        for network, value in networks.items():
            for index, endpoint in enumerate(mappings(mapping(value).get("endpoints"))):
                registry = endpoint.get("fromRegistry")
                if registry and registry not in clusters:
                    path = f"data.meshNetworks.networks[{network}].endpoints[{index}].fromRegistry"
                    yield one, error("cluster-not-found", path, f"no Secret has the kubeconfig of cluster {registry}")


NETWORKS = Analyzer("meshnetworks.MeshNetworksAnalyzer", (INJECTOR_CONFIG, CLUSTER_SECRET), _check)
