"""Resources for gRPC's own xDS client, which routes requests and balances load without a proxy.

The client requests every resource by name, and reads only a few fields.
https://github.com/grpc/grpc/blob/master/doc/grpc_xds_features.md
"""
