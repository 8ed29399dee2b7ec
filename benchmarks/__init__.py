"""Reproducible benchmarks: ``make bench``, or ``python -m benchmarks``."""
