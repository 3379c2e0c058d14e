"""Traffic capture: the rules that redirect a pod's traffic to its Envoy, and their application to the kernel."""
