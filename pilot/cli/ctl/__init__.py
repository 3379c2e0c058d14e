"""pilotctl, and what its commands share."""
