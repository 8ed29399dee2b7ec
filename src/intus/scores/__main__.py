"""Print what every registered score is, as Markdown: ``python -m intus.scores``.

``python -m intus.scores --calibrate [name …]`` measures the scores instead, and prints the JSON that is
stored in ``documentation/calibration.json``.
"""

import sys

from .documentation.calibrate import main
from .documentation.document import document

if sys.argv[1:2] == ["--calibrate"]:
    main(sys.argv[2:])
else:
    print(document(), end="")
