"""What installs the control plane: charts and profiles, and what renders them."""
