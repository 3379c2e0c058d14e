"""The parts of a route that its rule configures: the action, and the per-route configuration of filters."""
