"""The configuration of users' Wasm modules. Filters request it by name (extension config discovery).

https://www.envoyproxy.io/docs/envoy/latest/configuration/overview/extension
"""

from __future__ import annotations

import hashlib

import msgspec
from envoy.config.core.v3 import base_pb2, config_source_pb2, extension_pb2, http_uri_pb2
from envoy.config.rbac.v3 import rbac_pb2 as rules_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac_pb2
from envoy.extensions.filters.http.wasm.v3 import wasm_pb2 as http_wasm_pb2
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac_pb2
from envoy.extensions.filters.network.wasm.v3 import wasm_pb2 as network_wasm_pb2
from envoy.extensions.wasm.v3 import wasm_pb2
from google.protobuf import any_pb2, duration_pb2, wrappers_pb2

from pilot.config.extensions.traffic_extension import TrafficExtension, WasmConfig
from pilot.config.kinds.istio import TRAFFIC_EXTENSION
from pilot.config.object import Object, ObjectKey
from pilot.derive import Lookup, derived
from pilot.envoy.names import parse_extension_config
from pilot.envoy.resource import Resource
from pilot.envoy.well_known_types import TYPE_PREFIX, pack
from pilot.lib.go_json import encode
from pilot.lib.xds_types import EXTENSION
from pilot.mesh.model.facets import ExtensionReaderFacet
from pilot.mesh.security.pull_secrets import pull_secret
from pilot.mesh.tables.database import Mesh

RUNTIME = "envoy.wasm.runtime.v8"
PULL_SECRET, PULL_POLICY = "ISTIO_META_WASM_IMAGE_PULL_SECRET", "ISTIO_META_WASM_IMAGE_PULL_POLICY"
VERSION = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"
_SECONDS = 30
_FILE = "file://"
_ADS = config_source_pb2.ConfigSource(
    ads=config_source_pb2.AggregatedConfigSource(),
    initial_fetch_timeout=duration_pb2.Duration(),  # wait without limit: the extension may enforce security
    resource_api_version=config_source_pb2.ApiVersion.V3,
)
_FAILURES = {"FAIL_CLOSE": wasm_pb2.FAIL_CLOSED, "FAIL_OPEN": wasm_pb2.FAIL_OPEN, "FAIL_RELOAD": wasm_pb2.FAIL_RELOAD}


def wait_for(*type_names: str) -> config_source_pb2.ExtensionConfigSource:
    """Return the config source for a filter whose configuration arrives over ADS. Only these message types are
    accepted."""
    return config_source_pb2.ExtensionConfigSource(
        config_source=_ADS, type_urls=[TYPE_PREFIX + name for name in type_names]
    )


def build_extension_config(
    name: str, plugin: str, module: WasmConfig, version: str, pull_secret: str | None
) -> extension_pb2.TypedExtensionConfig:
    """Return the configuration of a module.

    `plugin` names the module in logs and statistics. `version` changes whenever the object changes, so that the agent
    fetches the image again. `pull_secret` is the credential for the registry. It is None if the module needs none, and
    "" if the secret is missing or the proxy may not read it.
    """
    config = wasm_pb2.PluginConfig(
        name=plugin,
        root_id=module.plugin_name,
        configuration=pack(wrappers_pb2.StringValue(value=encode(module.plugin_config)))
        if module.plugin_config
        else any_pb2.Any(),
        failure_policy=_FAILURES[module.fail_strategy],
        vm_config=wasm_pb2.VmConfig(
            runtime=RUNTIME, code=_code(module), environment_variables=_environment(module, version, pull_secret)
        ),
    )
    wasm = network_wasm_pb2.Wasm(config=config) if module.type == "NETWORK" else http_wasm_pb2.Wasm(config=config)
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(wasm))


def build_fallback(name: str, module: WasmConfig) -> extension_pb2.TypedExtensionConfig:
    """Return the RBAC filter that replaces a module that the proxy cannot fetch.

    It allows all traffic if the module fails open, and denies all traffic otherwise.
    """
    fails_open = module.fail_strategy == "FAIL_OPEN"
    rules, prefix = (None, "wasm-default-allow") if fails_open else (rules_pb2.RBAC(), "wasm-default-deny")
    rbac: network_rbac_pb2.RBAC | http_rbac_pb2.RBAC = http_rbac_pb2.RBAC(rules=rules, rules_stat_prefix=prefix)
    if module.type == "NETWORK":
        rbac = network_rbac_pb2.RBAC(rules=rules, stat_prefix=prefix)
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(rbac))


def is_file(module: WasmConfig) -> bool:
    """Return whether the module is a file in the proxy's file system."""
    return module.url.startswith(_FILE)


def _code(module: WasmConfig) -> base_pb2.AsyncDataSource:
    """Return the location of the module's code: a local file, or a URL from which the agent fetches it."""
    if is_file(module):
        return base_pb2.AsyncDataSource(local=base_pb2.DataSource(filename=module.url.removeprefix(_FILE)))
    uri = module.url if "://" in module.url else f"oci://{module.url}"
    source = http_uri_pb2.HttpUri(uri=uri, cluster="_", timeout=duration_pb2.Duration(seconds=_SECONDS))
    return base_pb2.AsyncDataSource(remote=base_pb2.RemoteDataSource(http_uri=source, sha256=module.sha256))


def _environment(module: WasmConfig, version: str, pull_secret: str | None) -> wasm_pb2.EnvironmentVariables:
    """Return the environment variables of a module.

    The agent consumes and removes variables that start with ISTIO_META.
    """
    variables = module.vm_config.env if module.vm_config is not None else ()
    values: dict[str, str] = {VERSION: version}
    if pull_secret is not None:
        values[PULL_SECRET] = pull_secret
    if module.image_pull_policy != "UNSPECIFIED_POLICY":
        values[PULL_POLICY] = module.image_pull_policy
    values |= {v.name: v.value for v in variables if v.value_from == "INLINE" and v.name not in values}
    return wasm_pb2.EnvironmentVariables(
        host_env_keys=[v.name for v in variables if v.value_from == "HOST"], key_values=values
    )


@derived
def _extension_config(db: Mesh, name: str, reader: ExtensionReaderFacet) -> Resource | None:
    """Return the configuration with this name, or None if no extension with this name applies to the proxy."""
    parts = parse_extension_config(name)
    key = ObjectKey(*parts) if parts is not None else None
    if key is None or key not in reader.applied:
        return None
    return _module(db, name, key, reader.cluster) if reader.fetched else _file_module(db, name, key)


@derived
def _module(db: Mesh, name: str, key: ObjectKey, cluster: str | None) -> Resource | None:
    """Return the configuration of a module, or None if the extension does not exist or has no module.

    The proxy may read pull secrets in `cluster`. If `cluster` is None, it may read no secrets.
    """
    extension = TRAFFIC_EXTENSION.get(db, key)
    if extension is None or extension.spec.wasm is None:
        return None
    secret_name, secret = extension.spec.wasm.image_pull_secret, None
    if secret_name:
        secret = pull_secret(db, key.namespace, secret_name, cluster) if cluster is not None else ""
    config = build_extension_config(
        name, f"{key.namespace}.{key.name}", extension.spec.wasm, _version(extension), secret
    )
    return Resource.of(EXTENSION, config)


@derived
def _file_module(db: Mesh, name: str, key: ObjectKey) -> Resource | None:
    """Return the configuration of a module for proxies that only load modules from local files.

    A module that is not a local file is replaced by its fallback.
    """
    extension = TRAFFIC_EXTENSION.get(db, key)
    if extension is None or extension.spec.wasm is None:
        return None
    if is_file(extension.spec.wasm):
        return _module(db, name, key, None)
    return Resource.of(EXTENSION, build_fallback(name, extension.spec.wasm))


def _version(extension: Object[TrafficExtension]) -> str:
    """Return a hash of the extension's content and creation time."""
    content = msgspec.json.encode((extension.created, extension.spec), order="deterministic")
    return hashlib.sha256(content).hexdigest()[:16]


discovered_extensions: Lookup[str, [frozenset[str], ExtensionReaderFacet], Resource] = Lookup(
    "discovered_extensions", _extension_config
)
"""The extension configurations that proxies request by name."""
