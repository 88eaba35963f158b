"""``python -m npumark``."""

import sys

from npumark.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
