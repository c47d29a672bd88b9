"""`python -m llmlab`, the same as `llmlab`."""

import sys

from llmlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
