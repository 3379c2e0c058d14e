"""The workload's certificate: its private key, its issuance and renewal, and its delivery to Envoy over SDS."""
