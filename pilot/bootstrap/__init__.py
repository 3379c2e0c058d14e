"""The composition root: the parts of a control plane, and the order in which they start and stop."""

from pilot.bootstrap.control_plane import ControlPlane, run
from pilot.lib.start_error import StartError

__all__ = ["ControlPlane", "StartError", "run"]
