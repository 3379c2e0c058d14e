"""What gRPC's own xDS client is sent, which balances and routes without a proxy: it names each resource, and takes few fields of them.

https://github.com/grpc/grpc/blob/master/doc/grpc_xds_features.md
"""
