"""Command lines of pilot-discovery, pilot-agent, pilot-operator and pilotctl."""
