"""The operator: installs the IstioOperators in a cluster and corrects drift."""
