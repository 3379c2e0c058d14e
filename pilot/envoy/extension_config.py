"""Builds the configuration of users' Wasm modules, and says how filters wait for such configuration (ECDS).

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
from pilot.config.object import Object, ObjectKey
from pilot.derive import Lookup, derived
from pilot.envoy.names import parse_extension_config
from pilot.envoy.resource import Resource
from pilot.envoy.well_known_types import TYPE_PREFIX, pack
from pilot.lib.go_json import encode
from pilot.lib.xds_types import EXTENSION
from pilot.mesh.kinds.traffic_extensions import traffic_extensions
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
    initial_fetch_timeout=duration_pb2.Duration(),  # wait for it: what it does may be what makes the traffic safe
    resource_api_version=config_source_pb2.ApiVersion.V3,
)
_FAILURES = {"FAIL_CLOSE": wasm_pb2.FAIL_CLOSED, "FAIL_OPEN": wasm_pb2.FAIL_OPEN, "FAIL_RELOAD": wasm_pb2.FAIL_RELOAD}


def wait_for(*types: str) -> config_source_pb2.ExtensionConfigSource:
    """Returns the source of a filter that comes over ADS and is of one of these types, by full name."""
    return config_source_pb2.ExtensionConfigSource(config_source=_ADS, type_urls=[TYPE_PREFIX + name for name in types])


def build_extension_config(
    name: str, plugin: str, module: WasmConfig, version: str, pull_secret: str | None
) -> extension_pb2.TypedExtensionConfig:
    """Returns the configuration of a module.

    `plugin`: what the module is called in logs and statistics; `version`: another one where the object has changed, so that an image is
    fetched anew; `pull_secret`: for the registry, "" where it is not there or not to be read, None where none is needed.
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
    built = network_wasm_pb2.Wasm(config=config) if module.type == "NETWORK" else http_wasm_pb2.Wasm(config=config)
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(built))


def build_stand_in(name: str, module: WasmConfig) -> extension_pb2.TypedExtensionConfig:
    """Returns what stands in for a module that cannot be had: a filter that lets all through where the module may fail, else nothing."""
    opens = module.fail_strategy == "FAIL_OPEN"
    rules, prefix = (None, "wasm-default-allow") if opens else (rules_pb2.RBAC(), "wasm-default-deny")
    built: network_rbac_pb2.RBAC | http_rbac_pb2.RBAC = http_rbac_pb2.RBAC(rules=rules, rules_stat_prefix=prefix)
    if module.type == "NETWORK":
        built = network_rbac_pb2.RBAC(rules=rules, stat_prefix=prefix)
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(built))


def is_file(module: WasmConfig) -> bool:
    """Returns whether a module is a file of the proxy's."""
    return module.url.startswith(_FILE)


def _code(module: WasmConfig) -> base_pb2.AsyncDataSource:
    """Returns where the code is: a file of the proxy's, or a place from where its companion fetches it."""
    if is_file(module):
        return base_pb2.AsyncDataSource(local=base_pb2.DataSource(filename=module.url.removeprefix(_FILE)))
    uri = module.url if "://" in module.url else f"oci://{module.url}"
    place = http_uri_pb2.HttpUri(uri=uri, cluster="_", timeout=duration_pb2.Duration(seconds=_SECONDS))
    return base_pb2.AsyncDataSource(remote=base_pb2.RemoteDataSource(http_uri=place, sha256=module.sha256))


def _environment(module: WasmConfig, version: str, pull_secret: str | None) -> wasm_pb2.EnvironmentVariables:
    """Returns the variables of a module. Those that begin with ISTIO_META are for the companion, which takes them out."""
    said = module.vm_config.env if module.vm_config is not None else ()
    values: dict[str, str] = {VERSION: version}
    if pull_secret is not None:
        values[PULL_SECRET] = pull_secret
    if module.image_pull_policy != "UNSPECIFIED_POLICY":
        values[PULL_POLICY] = module.image_pull_policy
    values |= {v.name: v.value for v in said if v.value_from == "INLINE" and v.name not in values}
    return wasm_pb2.EnvironmentVariables(
        host_env_keys=[v.name for v in said if v.value_from == "HOST"], key_values=values
    )


@derived
def _discovered(db: Mesh, name: str, reader: ExtensionReaderFacet) -> Resource | None:
    """Returns the configuration of that name; None for one that is not of an extension of the proxy's."""
    key = ObjectKey(*found) if (found := parse_extension_config(name)) is not None else None
    if key is None or key not in reader.applied:
        return None
    return _module(db, name, key, reader.cluster) if reader.fetched else _own_module(db, name, key)


@derived
def _module(db: Mesh, name: str, key: ObjectKey, cluster: str | None) -> Resource | None:
    """Returns the configuration of a module, for proxies to which secrets of a cluster are told (None: no secrets)."""
    found = traffic_extensions.get(db, key)
    if found is None or found.spec.wasm is None:
        return None
    named, secret = found.spec.wasm.image_pull_secret, None
    if named:
        secret = pull_secret(db, key.namespace, named, cluster) if cluster is not None else ""
    built = build_extension_config(name, f"{key.namespace}.{key.name}", found.spec.wasm, _version(found), secret)
    return Resource.of(EXTENSION, built)


@derived
def _own_module(db: Mesh, name: str, key: ObjectKey) -> Resource | None:
    """Returns the configuration of a module, for proxies that have nothing but files; what stands in for any other."""
    found = traffic_extensions.get(db, key)
    if found is None or found.spec.wasm is None:
        return None
    if is_file(found.spec.wasm):
        return _module(db, name, key, None)
    return Resource.of(EXTENSION, build_stand_in(name, found.spec.wasm))


def _version(o: Object[TrafficExtension]) -> str:
    """Returns a text that is another one once the object says something else, or is a new one."""
    return hashlib.sha256(msgspec.json.encode((o.created, o.spec), order="deterministic")).hexdigest()[:16]


discovered_extensions: Lookup[str, [frozenset[str], ExtensionReaderFacet], Resource] = Lookup(
    "discovered_extensions", _discovered
)
"""The configuration of the extensions that proxies name."""
