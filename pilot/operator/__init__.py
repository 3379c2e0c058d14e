"""The operator: installs the IstioOperators of a cluster and corrects drift."""
