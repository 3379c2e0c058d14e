"""Routes (RDS): the route configurations of sidecars, gateways and waypoints."""
