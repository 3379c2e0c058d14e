"""The workload's certificate: its key, its issue and renewal, and its delivery to Envoy over SDS."""
