"""Commands: pilot-discovery and pilotctl."""
