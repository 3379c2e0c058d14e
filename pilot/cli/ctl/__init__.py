"""pilotctl, and the code that its commands share."""
