"""The filter through which an endpoint picker chooses the endpoint for a request.

Routes to an inference pool name the picker's ext_proc server. The picker writes the address into dynamic metadata,
which the pool's cluster reads. The proxy then reports in metadata which endpoint served the request.
https://gateway-api-inference-extension.sigs.k8s.io/
"""

from __future__ import annotations

from envoy.config.core.v3 import grpc_service_pb2
from envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2, processing_mode_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import any_pb2, duration_pb2, wrappers_pb2

from pilot.config.object import EndpointPicker
from pilot.envoy.names import outbound_cluster
from pilot.envoy.well_known_types import pack

NAME = "envoy.filters.http.ext_proc"
METADATA = "envoy.lb"
CHOSEN, SERVED = "x-gateway-destination-endpoint", "x-gateway-destination-endpoint-served"
_NO_CLUSTER = "dummy"  # never called: only routes to a pool enable the filter
_Mode = processing_mode_pb2.ProcessingMode
_NAMESPACES = ext_proc_pb2.MetadataOptions.MetadataNamespaces(untyped=[METADATA])


def _service(cluster: str, timeout: duration_pb2.Duration | None = None) -> grpc_service_pb2.GrpcService:
    return grpc_service_pb2.GrpcService(
        envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=cluster), timeout=timeout
    )


ENDPOINT_PICKER = hcm_pb2.HttpFilter(
    name=NAME,
    typed_config=pack(
        ext_proc_pb2.ExternalProcessor(
            grpc_service=_service(_NO_CLUSTER, duration_pb2.Duration(seconds=10)),
            failure_mode_allow=True,
            processing_mode=_Mode(request_header_mode=_Mode.SKIP, response_header_mode=_Mode.SKIP),
            message_timeout=duration_pb2.Duration(seconds=1000),
            metadata_options=ext_proc_pb2.MetadataOptions(
                receiving_namespaces=_NAMESPACES, forwarding_namespaces=_NAMESPACES
            ),
        )
    ),
)


def build_override(picker: EndpointPicker) -> any_pb2.Any:
    """Return the filter's per-route configuration for a route to an inference pool.

    The picker receives complete requests and responses, because the body contains the name of the model.
    """
    mode = _Mode(
        request_header_mode=_Mode.SEND,
        request_body_mode=_Mode.FULL_DUPLEX_STREAMED,
        request_trailer_mode=_Mode.SEND,
        response_header_mode=_Mode.SEND,
        response_body_mode=_Mode.FULL_DUPLEX_STREAMED,
        response_trailer_mode=_Mode.SEND,
    )
    overrides = ext_proc_pb2.ExtProcOverrides(
        failure_mode_allow=wrappers_pb2.BoolValue(value=picker.fails_open),
        grpc_service=_service(outbound_cluster(picker.port, "", picker.host)),
        processing_mode=mode,
    )
    return pack(ext_proc_pb2.ExtProcPerRoute(overrides=overrides))
