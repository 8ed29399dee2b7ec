"""Scores of single units and hypotheses: how strongly a unit responds to an idea."""
