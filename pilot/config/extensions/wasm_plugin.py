"""extensions.istio.io WasmPlugin. https://istio.io/latest/docs/reference/config/proxy_extensions/wasm-plugin/"""

from __future__ import annotations

from typing import Any, Literal

from pilot.config.base import Int32, Strict
from pilot.config.extensions.traffic_extension import FailStrategy, PluginType, PullPolicy, TrafficSelector, VmConfig
from pilot.config.selector import PolicyTargetReference, WorkloadSelector

PluginPhase = Literal["UNSPECIFIED_PHASE", "AUTHN", "AUTHZ", "STATS"]


class WasmPlugin(Strict, frozen=True):
    """The older form of a TrafficExtension with a Wasm module."""

    selector: WorkloadSelector | None = None
    target_ref: PolicyTargetReference | None = None
    target_refs: tuple[PolicyTargetReference, ...] = ()
    url: str = ""
    sha256: str = ""
    image_pull_policy: PullPolicy = "UNSPECIFIED_POLICY"
    image_pull_secret: str = ""
    verification_key: str = ""
    plugin_config: dict[str, Any] | None = None
    plugin_name: str = ""
    phase: PluginPhase = "UNSPECIFIED_PHASE"
    priority: Int32 | None = None
    fail_strategy: FailStrategy = "FAIL_CLOSE"
    vm_config: VmConfig | None = None
    match: tuple[TrafficSelector, ...] = ()
    type: PluginType = "UNSPECIFIED_PLUGIN_TYPE"
