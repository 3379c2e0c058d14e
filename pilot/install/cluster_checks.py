"""What a cluster is seen to be and to have, as far as an installation depends on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from deploy.operator.settings_tree import value_at
from pilot.install.install_plan import InstallPlan
from pilot.kube.errors import KubeError
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind

_CILIUM = ResourceKey(VersionedKind("v1", "ConfigMap"), "kube-system", "cilium-config")
_CALICO = ResourceKey(VersionedKind("crd.projectcalico.org/v1", "FelixConfiguration"), "", "default")


async def detect_platform(objects: ObjectClient) -> str:
    """Returns the name of a platform that needs other defaults, "" for all others. KubeError where the server cannot be asked."""
    return "gke" if "-gke" in await objects.version() else ""


async def cni_warnings(objects: ObjectClient, plan: InstallPlan) -> AsyncIterator[str]:
    """Yields what other network plugins are set to that the mesh's own does not work beside."""
    if not any(step.component == "Cni" for step in plan.steps):
        return
    try:
        cilium, calico = await objects.get(_CILIUM), await objects.get(_CALICO)
    except KubeError:  # whoever installs may not look there
        return
    data = (cilium or {}).get("data") or {}
    if data.get("cni-exclusive") == "true":
        yield "Cilium removes other plugins' configuration of the CNI: set cni-exclusive to false in kube-system/cilium-config"
    if data.get("bpf-lb-sock") == "true" and data.get("bpf-lb-sock-hostns-only") != "true":
        yield "Cilium balances in the sockets of pods, past their proxies: set bpf-lb-sock-hostns-only to true in kube-system/cilium-config"
    spec = value_at(calico, "spec", {})
    if spec.get("bpfEnabled") and spec.get("bpfConnectTimeLoadBalancing", "TCP") != "Disabled":
        yield "Calico's eBPF balances when pods connect, past their proxies: set bpfConnectTimeLoadBalancing to Disabled"
