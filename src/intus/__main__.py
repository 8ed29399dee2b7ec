"""``python -m intus`` is the ``intus`` command."""

import sys

from .cli import main

sys.exit(main())
