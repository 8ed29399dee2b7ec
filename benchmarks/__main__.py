"""Run every benchmark: each writes a table of its own into benchmarks/results."""

from . import recording

recording.main()
