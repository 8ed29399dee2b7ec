"""Let the tests of this folder import the judges of the sweep."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
