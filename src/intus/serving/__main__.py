"""Run a server: ``python -m intus.serving``."""

import sys

from .options import one_thread

one_thread()

from .run import main  # noqa: E402 - it loads numerical libraries

sys.exit(main())
