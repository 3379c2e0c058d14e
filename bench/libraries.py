#!/usr/bin/env python3
"""Measure the libraries compared in docs/adr/: microseconds, the best of five rounds.

python bench/libraries.py
"""

from __future__ import annotations

import argparse
import json
import timeit
from collections.abc import Callable
from typing import Any

import msgspec
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.service.discovery.v3 import discovery_pb2
from envoy_data_plane.envoy.config.core import v3 as other_core
from envoy_data_plane.envoy.config.endpoint import v3 as other_endpoint
from google.protobuf import any_pb2, json_format

from pilot.config.networking.virtual_service import VirtualService
from pilot.envoy.resource import length_delimited
from pilot.lib.duration import parse_duration

VIRTUAL_SERVICE = {
    "hosts": ["reviews"],
    "http": [
        {
            "match": [{"headers": {"end-user": {"exact": "jo"}}}],
            "route": [{"destination": {"host": "reviews", "subset": "v2"}}],
            "timeout": "5s",
            "retries": {"attempts": 3, "perTryTimeout": "2s"},
        },
        {
            "route": [
                {"destination": {"host": "reviews", "subset": v}, "weight": w} for v, w in (("v1", 90), ("v2", 10))
            ]
        },
    ],
}
VIRTUAL_HOST = {
    "name": "reviews",
    "domains": ["reviews"],
    "routes": [
        {
            "match": {"prefix": "/", "headers": [{"name": "end-user", "stringMatch": {"exact": "jo"}}]},
            "route": {"cluster": "v2", "timeout": "5s", "retryPolicy": {"numRetries": 3, "perTryTimeout": "2s"}},
        },
        {
            "match": {"prefix": "/"},
            "route": {"weightedClusters": {"clusters": [{"name": "v1", "weight": 90}, {"name": "v2", "weight": 10}]}},
        },
    ],
}


def measure(title: str, fn: Callable[[], Any], rounds: int) -> None:
    print(f"{title:62} {min(timeit.repeat(fn, number=rounds, repeat=5)) / rounds * 1e6:9.2f} µs")


def build_endpoint() -> Any:
    socket_address = address_pb2.SocketAddress(address="10.0.0.1", port_value=8080)
    endpoint = endpoint_components_pb2.Endpoint(address=address_pb2.Address(socket_address=socket_address))
    return endpoint_components_pb2.LbEndpoint(endpoint=endpoint, load_balancing_weight={"value": 1})


def build_other_endpoint() -> Any:
    socket_address = other_core.SocketAddress(address="10.0.0.1", port_value=8080)
    endpoint = other_endpoint.Endpoint(address=other_core.Address(socket_address=socket_address))
    return other_endpoint.LbEndpoint(endpoint=endpoint, load_balancing_weight=1)


def messages() -> None:
    ours, alternative = build_endpoint(), build_other_endpoint()
    data = ours.SerializeToString()
    assert bytes(alternative) == data
    measure("an endpoint, xds-protos: build", build_endpoint, 20_000)
    measure("an endpoint, envoy-data-plane: build", build_other_endpoint, 2_000)
    measure("an endpoint, xds-protos: serialize", lambda: ours.SerializeToString(deterministic=True), 20_000)
    measure("an endpoint, envoy-data-plane: serialize", lambda: bytes(alternative), 2_000)
    measure("an endpoint, xds-protos: parse", lambda: endpoint_components_pb2.LbEndpoint.FromString(data), 20_000)
    measure("an endpoint, envoy-data-plane: parse", lambda: other_endpoint.LbEndpoint.parse(data), 2_000)


def configuration() -> None:
    decoder = msgspec.json.Decoder(VirtualService, dec_hook=lambda _, text: parse_duration(text))
    config, message = json.dumps(VIRTUAL_SERVICE).encode(), json.dumps(VIRTUAL_HOST)
    measure("VirtualService, msgspec: decode and validate JSON", lambda: decoder.decode(config), 5_000)
    measure(
        "VirtualHost, protobuf json_format: decode JSON",
        lambda: json_format.Parse(message, route_components_pb2.VirtualHost()),
        1_000,
    )


def responses() -> None:
    packed = []
    for number in range(1_000):
        message = any_pb2.Any()
        message.Pack(
            cluster_pb2.Cluster(name=f"outbound|80||s{number}.prod.svc.cluster.local", alt_stat_name="x" * 1_200),
            deterministic=True,
        )
        packed.append(message)
    url = packed[0].type_url
    frames = [length_delimited(2, message.SerializeToString()) for message in packed]
    head, tail = length_delimited(1, b"v"), length_delimited(4, url.encode()) + length_delimited(5, b"n")

    def assemble() -> bytes:
        return discovery_pb2.DiscoveryResponse(
            version_info="v", resources=packed, type_url=url, nonce="n"
        ).SerializeToString()

    def join() -> bytes:
        return b"".join((head, *frames, tail))

    assert assemble() == join()
    measure("response with 1,000 clusters (1.3 MB), protobuf", assemble, 50)
    measure("response with 1,000 clusters (1.3 MB), joined bytes", join, 200)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    messages()
    configuration()
    responses()
