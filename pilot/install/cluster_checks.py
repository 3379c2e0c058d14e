"""Properties of the cluster that affect an installation."""

from __future__ import annotations

from collections.abc import AsyncIterator

from deploy.operator.settings_tree import value_at
from pilot.install.install_plan import InstallPlan
from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind

_CILIUM = ResourceKey(VersionedKind("v1", "ConfigMap"), "kube-system", "cilium-config")
_CALICO = ResourceKey(VersionedKind("crd.projectcalico.org/v1", "FelixConfiguration"), "", "default")


async def detect_platform(objects: ObjectClient) -> str:
    """Return the name of the cluster's platform, or "" if the platform has no specific defaults. Raises KubeError."""
    return "gke" if "-gke" in await objects.version() else ""


async def cni_warnings(objects: ObjectClient, plan: InstallPlan) -> AsyncIterator[str]:
    """Yield a warning for each setting of another CNI plugin that conflicts with the mesh's plugin."""
    if not any(step.component == "Cni" for step in plan.steps):
        return
    try:
        cilium, calico = await objects.get(_CILIUM), await objects.get(_CALICO)
    except KubeError:  # the user may lack permission to read these objects
        return
    data = (cilium or {}).get("data") or {}
    if data.get("cni-exclusive") == "true":
        yield (
            "Cilium removes the CNI configuration of other plugins; "
            "set cni-exclusive to false in the ConfigMap kube-system/cilium-config"
        )
    if data.get("bpf-lb-sock") == "true" and data.get("bpf-lb-sock-hostns-only") != "true":
        yield (
            "Cilium's socket load balancing bypasses the proxies of pods; "
            "set bpf-lb-sock-hostns-only to true in the ConfigMap kube-system/cilium-config"
        )
    spec = value_at(calico, "spec", {})
    if spec.get("bpfEnabled") and spec.get("bpfConnectTimeLoadBalancing", "TCP") != "Disabled":
        yield (
            "Calico's connect-time load balancing bypasses the proxies of pods; "
            "set bpfConnectTimeLoadBalancing to Disabled in the FelixConfiguration"
        )
