"""Scores of classifiers and regressions that are fitted to rows of the sample."""
