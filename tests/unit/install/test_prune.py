"""Tests of pruning."""

from __future__ import annotations

from pilot.install.installation_labels import COMPONENT
from pilot.install.prune import prune
from pilot.kube.object_client import resource_key
from tests.unit.install.labelled_cluster import CONFIG_MAP, DEPLOYMENT, LabelledCluster, make_object


async def test_prune_spares_desired_marked_and_owned_objects() -> None:
    owned = make_object(DEPLOYMENT, "owned", "edge", component="Pilot")
    owned["metadata"]["ownerReferences"] = [{"kind": "Gateway"}]
    marked = make_object(CONFIG_MAP, "marked", "edge", component="Pilot")
    marked["metadata"]["labels"]["install.operator.istio.io/owning-resource-not-pruned"] = "true"
    desired, obsolete = (
        make_object(CONFIG_MAP, "desired", "edge", component="Pilot"),
        make_object(CONFIG_MAP, "obsolete", "edge", component="Pilot"),
    )
    cluster = LabelledCluster(owned, marked, desired, obsolete)
    assert await prune(cluster, COMPONENT, {resource_key(desired)}) == [resource_key(obsolete)]  # type: ignore[arg-type]
    assert cluster.deleted == [resource_key(obsolete)]
