"""The operator: what the IstioOperators of a cluster say is installed, and stays so."""
