"""The composition root: the parts of a control plane, in which order they start, and how they end."""

from pilot.bootstrap.control_plane import ControlPlane, run
from pilot.lib.start_error import StartError

__all__ = ["ControlPlane", "StartError", "run"]
