"""The commands pilot-discovery, pilot-agent, pilot-operator and pilotctl."""
