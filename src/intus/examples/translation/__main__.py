"""``python -m intus.examples.translation runs.db``: tables, sentences and curves of the newest run."""

import sys
from pathlib import Path

from intus import runs
from intus.examples.translation.analysis import draw, report

scores = next(iter(runs(sys.argv[1]).values())).scores()
print(report(scores))
draw(scores, Path())
