"""Messages of Istio's configuration on the wire, as `protos`."""
