"""Installation of the control plane: Helm charts and profiles, and the code that renders them."""
