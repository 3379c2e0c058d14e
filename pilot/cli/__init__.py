"""The commands pilot-discovery, pilot-agent, pilot-operator and pilotctl.

Importing this package ensures that users never see a traceback, even if they press Ctrl-C while a command is imported.
"""

from pilot.cli.uncaught import install

install()
