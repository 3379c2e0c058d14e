"""The generated files of this package.

python -m deploy            writes them
python -m deploy --check    exit 1 where one of them is not what would be written
"""

import sys

from deploy.generated import stale, write

if sys.argv[1:] == ["--check"]:
    if found := stale():
        sys.exit(f"stale: {', '.join(found)}: python -m deploy")
else:
    write()
