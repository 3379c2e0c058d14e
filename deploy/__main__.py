"""Generates the derived files of this package.

python -m deploy                 write the files
python -m deploy --image NAME    write them with this repository of the image of the control plane
python -m deploy --check         exit with status 1 if a file is out of date
"""

import sys

from deploy.generated import stale_files, write_files

if sys.argv[1:] == ["--check"]:
    if stale := stale_files():
        sys.exit(f"out of date: {', '.join(stale)}; run python -m deploy")
elif sys.argv[1:2] == ["--image"] and len(sys.argv) == 3:
    write_files(sys.argv[2])
elif sys.argv[1:]:
    sys.exit(__doc__)
else:
    write_files()
