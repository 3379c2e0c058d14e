"""What a control plane writes into clusters: root certificates, addresses, workloads that register themselves, status."""
