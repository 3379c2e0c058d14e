"""SDS configurations: the sources of certificates and roots.

There are three sources: the proxy's agent (mesh certificates and mounted files), an SDS server that the user runs next
to the proxy, and the control plane over ADS (credentials of Gateways and DestinationRules).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from envoy.config.core.v3 import config_source_pb2, grpc_service_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from google.protobuf import duration_pb2

from pilot.envoy import names

V3 = config_source_pb2.ApiVersion.V3


class SdsProvider(NamedTuple):
    """The SDS server of an extension provider. `authority` is the authority of requests to it."""

    cluster: str
    authority: str


def _server_secret(name: str, cluster: str, authority: str = "", wait: bool = False) -> secret_pb2.SdsSecretConfig:
    """Return the configuration of a secret from an SDS server.

    If `wait` is set, listeners and clusters that use the secret are not ready before it arrives.
    """
    envoy = grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=cluster, authority=authority)
    source = config_source_pb2.ConfigSource(
        resource_api_version=V3,
        api_config_source=config_source_pb2.ApiConfigSource(
            api_type=config_source_pb2.ApiConfigSource.GRPC,
            transport_api_version=V3,
            set_node_on_first_message_only=True,
            grpc_services=[grpc_service_pb2.GrpcService(envoy_grpc=envoy)],
        ),
    )
    if wait:
        source.initial_fetch_timeout.CopyFrom(duration_pb2.Duration())
    return secret_pb2.SdsSecretConfig(name=name, sds_config=source)


WORKLOAD_CERTIFICATE = _server_secret(names.WORKLOAD_SECRET, names.SDS_CLUSTER, wait=True)
MESH_ROOTS = _server_secret(names.ROOT_SECRET, names.SDS_CLUSTER, wait=True)


@lru_cache(maxsize=1024)
def build_file_secret(name: str, default: str = "", user_server: bool = False) -> secret_pb2.SdsSecretConfig:
    """Return the SDS configuration for the mounted file `name`, or for the mesh secret `default` if `name` is "".

    Names are created by `names.file_certificate` and `names.file_root`. If `user_server` is set, the user's SDS server
    reads the files (node metadata `file-credential`).
    """
    if name and user_server:
        return _server_secret(name, names.SDS_FILES_CLUSTER)
    mesh = {names.WORKLOAD_SECRET: WORKLOAD_CERTIFICATE, names.ROOT_SECRET: MESH_ROOTS}
    return mesh.get(name or default) or _server_secret(name, names.SDS_CLUSTER)


@lru_cache(maxsize=1024)
def build_credential_secret(
    name: str, user_server: bool = False, provider: SdsProvider | None = None
) -> secret_pb2.SdsSecretConfig:
    """Return the SDS configuration for a `credentialName`.

    Credentials with the prefix "sds://" come from the SDS socket in the Pod if `user_server` is set (node metadata
    `credential`), or else from the mesh's SDS extension provider. If there is neither, they are names of Kubernetes
    Secrets. The default fetch timeout applies, because a missing credential must not block the rest of a listener or
    cluster.
    """
    if name == names.BUILTIN_CREDENTIAL:
        return WORKLOAD_CERTIFICATE
    if name == names.BUILTIN_CREDENTIAL + names.CA_SUFFIX:
        return MESH_ROOTS
    if name.startswith(names.SDS_CREDENTIAL):
        if user_server:
            return _server_secret(name, names.SDS_EXTERNAL_CLUSTER)
        name = name.removeprefix(names.SDS_CREDENTIAL)
        if provider is not None:
            return _server_secret(name, provider.cluster, provider.authority)
    ads = config_source_pb2.ConfigSource(resource_api_version=V3, ads=config_source_pb2.AggregatedConfigSource())
    return secret_pb2.SdsSecretConfig(name=names.credential(name), sds_config=ads)
