"""The commands of pilotctl, one module each."""
