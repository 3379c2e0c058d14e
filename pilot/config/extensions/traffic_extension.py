"""extensions.istio.io TrafficExtension. https://istio.io/latest/docs/reference/config/extensions/"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pilot.config.base import Int32, OneOf, Strict, UInt32
from pilot.config.selector import PolicyTargetReference, WorkloadSelector

ExecutionPhase = Literal["UNSPECIFIED", "AUTHN", "AUTHZ", "STATS"]
FailStrategy = Literal["FAIL_CLOSE", "FAIL_OPEN", "FAIL_RELOAD"]
PluginType = Literal["UNSPECIFIED_PLUGIN_TYPE", "HTTP", "NETWORK"]
PullPolicy = Literal["UNSPECIFIED_POLICY", "IfNotPresent", "Always"]
WorkloadMode = Literal["UNDEFINED", "CLIENT", "SERVER", "CLIENT_AND_SERVER"]


class TrafficExtension(OneOf, frozen=True):
    """Inserts a Wasm or Lua filter into the proxies of workloads.

    Within a phase, filters run in descending order of `priority`. Filters without a priority run last.
    """

    groups: ClassVar = (("wasm", "lua"),)

    selector: WorkloadSelector | None = None
    target_refs: tuple[PolicyTargetReference, ...] = ()
    phase: ExecutionPhase = "UNSPECIFIED"
    priority: Int32 | None = None
    match: tuple[TrafficSelector, ...] = ()
    wasm: WasmConfig | None = None
    lua: LuaConfig | None = None


class TrafficSelector(Strict, frozen=True):
    """The direction and ports of the traffic that an extension applies to. Without ports, it applies to all ports."""

    mode: WorkloadMode = "UNDEFINED"
    ports: tuple[PortSelector, ...] = ()


class PortSelector(Strict, frozen=True):
    number: UInt32 = 0


class WasmConfig(Strict, frozen=True):
    """A Wasm module and its configuration."""

    url: str = ""
    sha256: str = ""
    image_pull_policy: PullPolicy = "UNSPECIFIED_POLICY"
    image_pull_secret: str = ""
    verification_key: str = ""
    plugin_config: dict[str, Any] | None = None
    plugin_name: str = ""
    fail_strategy: FailStrategy = "FAIL_CLOSE"
    vm_config: VmConfig | None = None
    type: PluginType = "UNSPECIFIED_PLUGIN_TYPE"


class VmConfig(Strict, frozen=True):
    env: tuple[EnvVar, ...] = ()


class EnvVar(Strict, frozen=True):
    name: str = ""
    value_from: Literal["INLINE", "HOST"] = "INLINE"
    value: str = ""


class LuaConfig(Strict, frozen=True):
    inline_code: str = ""
