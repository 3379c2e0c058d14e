"""Generate the settings reference.

python -m pilot.settings                            prints docs/settings.md python -m pilot.settings --check
docs/settings.md   exits with status 1 if the file is out of date
"""

import sys

from pilot.settings.document import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
