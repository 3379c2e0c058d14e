"""Views of ambient mode: waypoints and who uses them, what ztunnels are told of workloads, services and policies."""
