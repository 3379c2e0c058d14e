"""The commands of pilotctl, one file each."""
