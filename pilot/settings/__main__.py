"""The document of all settings.

python -m pilot.settings                            prints docs/settings.md
python -m pilot.settings --check docs/settings.md   exit 1 where that file is not what would be printed
"""

import sys

from pilot.settings.document import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
