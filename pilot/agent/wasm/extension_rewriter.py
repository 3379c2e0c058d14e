"""Rewrites Wasm extension configurations for Envoy.

Remote modules are replaced by local files, and environment variables for the agent are removed.

If a module cannot be fetched, or its local file does not exist, its filter is replaced by one that allows or denies all
traffic, according to the filter's failure policy. Envoy would reject a filter whose file does not exist, and the
listeners that use the filter would not start.
"""

from __future__ import annotations

import pathlib
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
from pilot.lib.logging.log import scope

PULL_SECRET, PULL_POLICY = "ISTIO_META_WASM_IMAGE_PULL_SECRET", "ISTIO_META_WASM_IMAGE_PULL_POLICY"
VERSION, AGENT_PREFIX = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION", "ISTIO_META_"
_ALLOW_STAT_PREFIX, _DENY_STAT_PREFIX = "wasm-default-allow", "wasm-default-deny"
_DEFAULT_TIMEOUT = 5.0
_log = scope("wasm")


class RewriteObserver(Protocol):
    """Receives the events that metrics count."""

    def extension_converted(self, result: str) -> None: ...


class _PullSecretUnavailable(FetchError):
    """The pull secret does not exist or is withheld from this proxy.

    Retries fail until the control plane sends an update.
    """


class ExtensionRewriter:
    """Rewrites extension configurations. It blocks while modules are fetched, so call it in a thread."""

    def __init__(self, modules: ModuleCache, observer: RewriteObserver) -> None:
        self._modules, self._observer = modules, observer

    def rewrite(self, packed: Any) -> Outcome:
        """Rewrite a packed extension in place."""
        extension = extension_pb2.TypedExtensionConfig()
        try:
            extension.ParseFromString(packed.value)
            filter_config = _find_wasm_filter(extension)
        except (DecodeError, json_format.ParseError) as error:
            _log.warning("cannot decode extension %s: %s", extension.name, error)
            self._observer.extension_converted("unmarshal_failure")
            return "unchanged"
        if filter_config is None or not _needs_rewrite(filter_config.config.vm_config.code):
            self._observer.extension_converted("no_remote_load")
            return "unchanged"
        local_config, outcome = self._localize_or_replace(extension.name, filter_config)
        extension.typed_config.Pack(local_config)
        packed.value = extension.SerializeToString()
        return outcome

    def _localize_or_replace(self, name: str, filter_config: Any) -> tuple[Any, Outcome]:
        """Return the filter with its code in a local file. If there is no code, return a replacement for the filter."""
        config = filter_config.config
        policy = config.failure_policy
        fails_open = policy == wasm_pb2.FAIL_OPEN or (policy == wasm_pb2.UNSPECIFIED and config.fail_open)
        try:
            _localize(name, config.vm_config, self._modules)
        except FetchError as error:
            _log.error(
                "the Wasm module of %s is unavailable, so the filter %s: %s",
                name,
                "allows all traffic" if fails_open else "denies all traffic",
                error,
            )
            self._observer.extension_converted(error.result)
            return _build_replacement(isinstance(filter_config, network_wasm_pb2.Wasm), fails_open), "rewritten" if (
                isinstance(error, _PullSecretUnavailable)
            ) else "pending"
        self._observer.extension_converted("success")
        return filter_config, "rewritten"


def _find_wasm_filter(extension: extension_pb2.TypedExtensionConfig) -> Any:
    """Return the Wasm filter of an extension, which may be in a TypedStruct, or None if it is another extension."""
    typed_config = extension.typed_config
    for message in (http_wasm_pb2.Wasm, network_wasm_pb2.Wasm):
        filter_config: Any = message()
        if typed_config.Unpack(filter_config):
            return filter_config
        for struct in (udpa_pb2.TypedStruct(), xds_pb2.TypedStruct()):
            if typed_config.Unpack(struct) and struct.type_url.rpartition("/")[2] == message.DESCRIPTOR.full_name:
                return json_format.ParseDict(json_format.MessageToDict(struct.value), filter_config)
    return None


def _needs_rewrite(code: base_pb2.AsyncDataSource) -> bool:
    """Return whether Envoy cannot load a module from where it is."""
    return code.HasField("remote") or not _has_file(code)


def _has_file(code: base_pb2.AsyncDataSource) -> bool:
    return not code.local.filename or pathlib.Path(code.local.filename).is_file()


def _localize(name: str, vm: wasm_pb2.VmConfig, modules: ModuleCache) -> None:
    """Replace the remote source of a module with a local file. Raises FetchError."""
    if not _has_file(vm.code):
        raise FetchError(f"file {vm.code.local.filename} does not exist")
    remote, variables = vm.code.remote, dict(vm.environment_variables.key_values)
    secret = variables.get(PULL_SECRET)
    for key in [key for key in variables if key.startswith(AGENT_PREFIX)]:
        del vm.environment_variables.key_values[key]
    if not vm.environment_variables.key_values and not vm.environment_variables.host_env_keys:
        vm.ClearField("environment_variables")
    if secret == "":
        raise _PullSecretUnavailable(
            "its pull secret does not exist or is not available to this proxy", "fetch_failure"
        )
    checksum = "" if remote.sha256 == "nil" else remote.sha256
    source = ModuleSource(
        remote.http_uri.uri, name, variables.get(VERSION, ""), checksum, variables.get(PULL_POLICY, ""), secret or ""
    )
    timeout = remote.http_uri.timeout
    path = modules.fetch(
        source, timeout.ToTimedelta().total_seconds() if remote.http_uri.HasField("timeout") else _DEFAULT_TIMEOUT
    )
    vm.code.CopyFrom(base_pb2.AsyncDataSource(local=base_pb2.DataSource(filename=str(path.absolute()))))


def _build_replacement(is_network_filter: bool, fails_open: bool) -> Any:
    """Return an RBAC filter. Without rules, it allows all traffic. With empty rules, it denies all traffic."""
    rules = None if fails_open else rules_pb2.RBAC()
    stat_prefix = _ALLOW_STAT_PREFIX if fails_open else _DENY_STAT_PREFIX
    if is_network_filter:
        return network_rbac_pb2.RBAC(rules=rules, stat_prefix=stat_prefix)
    return http_rbac_pb2.RBAC(rules=rules, rules_stat_prefix=stat_prefix)
