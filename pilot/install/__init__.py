"""Installation of an IstioOperator into a cluster: applies objects in order, waits for readiness, and prunes."""
