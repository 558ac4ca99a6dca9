"""``python -m unspool`` is the command ``unspool``."""

import sys

from unspool._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
