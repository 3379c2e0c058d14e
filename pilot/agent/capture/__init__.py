"""Traffic capture: builds the rules that redirect a pod's traffic to its Envoy, and applies them to the kernel."""
