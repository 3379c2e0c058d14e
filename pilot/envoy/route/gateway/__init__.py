"""Route configurations of gateways."""
