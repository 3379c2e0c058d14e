"""Builds SDS configurations: where a proxy gets a certificate or its roots from.

There are three sources: the proxy's companion (mesh certificates, mounted files), a server that the user runs next to it, and the control
plane over ADS (credentials of Gateways and DestinationRules).
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
    """Names the SDS server of an extension provider: its cluster, and the host that it is asked as."""

    cluster: str
    authority: str


def _from_server(name: str, cluster: str, authority: str = "", wait: bool = False) -> secret_pb2.SdsSecretConfig:
    """Returns a secret of a server. `wait`: no listener or cluster is ready before the secret is there."""
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


WORKLOAD_CERTIFICATE = _from_server(names.WORKLOAD_SECRET, names.SDS_CLUSTER, wait=True)


MESH_ROOTS = _from_server(names.ROOT_SECRET, names.SDS_CLUSTER, wait=True)


@lru_cache(maxsize=1024)
def build_file_secret(name: str, default: str = "", user_server: bool = False) -> secret_pb2.SdsSecretConfig:
    """Returns a mounted file under its SDS name (`names.file_certificate`, `names.file_root`); without one the mesh secret `default`.

    `user_server`: the user's own server reads the files (node metadata `file-credential`).
    """
    if name and user_server:
        return _from_server(name, names.SDS_FILES_CLUSTER)
    mesh = {names.WORKLOAD_SECRET: WORKLOAD_CERTIFICATE, names.ROOT_SECRET: MESH_ROOTS}
    return mesh.get(name or default) or _from_server(name, names.SDS_CLUSTER)


@lru_cache(maxsize=1024)
def build_credential_secret(
    name: str, user_server: bool = False, provider: SdsProvider | None = None
) -> secret_pb2.SdsSecretConfig:
    """Returns a `credentialName`. `user_server`: credentials sds:

    … come from the socket in the pod (node metadata `credential`), else from the mesh's SDS extension provider, else they are read as
    names of Kubernetes secrets.

    No fetch timeout of zero here: a credential that does not exist must not hold back the rest of a listener or cluster.
    """
    if name == names.BUILTIN_CREDENTIAL:
        return WORKLOAD_CERTIFICATE
    if name == names.BUILTIN_CREDENTIAL + names.CA_SUFFIX:
        return MESH_ROOTS
    if name.startswith(names.SDS_CREDENTIAL):
        if user_server:
            return _from_server(name, names.SDS_EXTERNAL_CLUSTER)
        name = name.removeprefix(names.SDS_CREDENTIAL)
        if provider is not None:
            return _from_server(name, provider.cluster, provider.authority)
    ads = config_source_pb2.ConfigSource(resource_api_version=V3, ads=config_source_pb2.AggregatedConfigSource())
    return secret_pb2.SdsSecretConfig(name=names.credential(name), sds_config=ads)
