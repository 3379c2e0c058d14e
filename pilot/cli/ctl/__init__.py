"""The commands of pilotctl, one file each: `add_to` declares its arguments and what to run."""
