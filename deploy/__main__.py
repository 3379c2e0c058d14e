"""Generates the derived files of this package.

python -m deploy            write the files
python -m deploy --check    exit with status 1 if a file is out of date
"""

import sys

from deploy.generated import stale_files, write_files

if sys.argv[1:] == ["--check"]:
    if stale := stale_files():
        sys.exit(f"out of date: {', '.join(stale)}; run python -m deploy")
else:
    write_files()
