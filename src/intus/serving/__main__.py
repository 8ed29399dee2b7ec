"""``python -m intus.serving``"""

import sys

from .run import main

sys.exit(main())
