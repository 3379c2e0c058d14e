"""Rewrites the configuration of extensions on its way to Envoy: remote modules become files, and what is for the companion alone is taken out.

A module that cannot be had becomes a filter that lets all through, or nothing, as its failure policy says.
"""

from __future__ import annotations

from typing import Any, Protocol

from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.config.rbac.v3 import rbac_pb2 as rules_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac_pb2
from envoy.extensions.filters.http.wasm.v3 import wasm_pb2 as http_wasm_pb2
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac_pb2
from envoy.extensions.filters.network.wasm.v3 import wasm_pb2 as network_wasm_pb2
from envoy.extensions.wasm.v3 import wasm_pb2
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from udpa.type.v1 import typed_struct_pb2 as udpa_pb2
from xds.type.v3 import typed_struct_pb2 as xds_pb2

from pilot.agent.wasm.extension_stream import Outcome
from pilot.agent.wasm.http_fetcher import FetchError
from pilot.agent.wasm.module_cache import ModuleCache, ModuleSource
from pilot.lib.log import scope

PULL_SECRET, PULL_POLICY = "ISTIO_META_WASM_IMAGE_PULL_SECRET", "ISTIO_META_WASM_IMAGE_PULL_POLICY"
VERSION, OURS = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION", "ISTIO_META_"
_ALLOW_STATISTICS, _DENY_STATISTICS = "wasm-default-allow", "wasm-default-deny"
_DEFAULT_SECONDS = 5.0
_log = scope("wasm")


class RewriteObserver(Protocol):
    """What is counted."""

    def module_converted(self, result: str) -> None: ...


class _NotTold(FetchError):
    """The module needs a secret that this proxy is not told: there is nothing to try again until the control plane says something else."""


class ExtensionRewriter:
    """Rewrites the configuration of extensions; blocks while modules are fetched, so that it is for a thread."""

    def __init__(self, files: ModuleCache, observer: RewriteObserver) -> None:
        self._files, self._observer = files, observer

    def rewrite(self, packed: Any) -> Outcome:
        """Rewrites a packed extension in place; it is unmet where something stands in for its module that may be had later."""
        extension = extension_pb2.TypedExtensionConfig()
        try:
            extension.ParseFromString(packed.value)
            module = _find_module(extension)
        except (DecodeError, json_format.ParseError) as error:
            _log.warning("the extension %s cannot be read: %s", extension.name, error)
            self._observer.module_converted("unmarshal_failure")
            return "as it is"
        if module is None or not module.config.vm_config.code.HasField("remote"):
            self._observer.module_converted("no_remote_load")
            return "as it is"
        localized, outcome = self._localized(extension.name, module)
        extension.typed_config.Pack(localized)
        packed.value = extension.SerializeToString()
        return outcome

    def _localized(self, name: str, module: Any) -> tuple[Any, Outcome]:
        """Returns the module with its code in a file, or what stands in for it."""
        config = module.config
        policy = config.failure_policy
        opens = policy == wasm_pb2.FAIL_OPEN or (policy == wasm_pb2.UNSPECIFIED and config.fail_open)
        try:
            _localize(name, config.vm_config, self._files)
        except FetchError as error:
            _log.error(
                "the module of %s cannot be had, so that %s: %s",
                name,
                "all is let through" if opens else "nothing is let through",
                error,
            )
            self._observer.module_converted(error.result)
            return _stand_in(isinstance(module, network_wasm_pb2.Wasm), opens), "rewritten" if isinstance(
                error, _NotTold
            ) else "unmet"
        self._observer.module_converted("success")
        return module, "rewritten"


def _find_module(extension: extension_pb2.TypedExtensionConfig) -> Any:
    """Returns the module of an extension, also of one that is written as a struct; None where it is no module."""
    typed = extension.typed_config
    for kind in (http_wasm_pb2.Wasm, network_wasm_pb2.Wasm):
        found: Any = kind()
        if typed.Unpack(found):
            return found
        for struct in (udpa_pb2.TypedStruct(), xds_pb2.TypedStruct()):
            if typed.Unpack(struct) and struct.type_url.rpartition("/")[2] == kind.DESCRIPTOR.full_name:
                return json_format.ParseDict(json_format.MessageToDict(struct.value), found)
    return None


def _localize(name: str, vm: wasm_pb2.VmConfig, files: ModuleCache) -> None:
    """Puts the file of a module in place of where it comes from. FetchError where it cannot be had."""
    remote, variables = vm.code.remote, dict(vm.environment_variables.key_values)
    secret = variables.get(PULL_SECRET)
    for ours in [key for key in variables if key.startswith(OURS)]:
        del vm.environment_variables.key_values[ours]
    if not vm.environment_variables.key_values and not vm.environment_variables.host_env_keys:
        vm.ClearField("environment_variables")
    if secret == "":
        raise _NotTold("its pull secret is not there, or this proxy is not told it", "fetch_failure")
    checksum = "" if remote.sha256 == "nil" else remote.sha256
    source = ModuleSource(
        remote.http_uri.uri, name, variables.get(VERSION, ""), checksum, variables.get(PULL_POLICY, ""), secret or ""
    )
    timeout = remote.http_uri.timeout
    path = files.get(
        source, timeout.ToTimedelta().total_seconds() if remote.http_uri.HasField("timeout") else _DEFAULT_SECONDS
    )
    vm.code.CopyFrom(base_pb2.AsyncDataSource(local=base_pb2.DataSource(filename=str(path.absolute()))))


def _stand_in(network: bool, opens: bool) -> Any:
    """Returns a filter that lets all through (without rules), or nothing (with rules of which none matches)."""
    rules = None if opens else rules_pb2.RBAC()
    statistics = _ALLOW_STATISTICS if opens else _DENY_STATISTICS
    if network:
        return network_rbac_pb2.RBAC(rules=rules, stat_prefix=statistics)
    return http_rbac_pb2.RBAC(rules=rules, rules_stat_prefix=statistics)
