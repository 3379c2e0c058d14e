"""Installation of the control plane: Helm charts, profiles, and the code that renders them."""
