"""Scores that compare layers with one another, and paired tests of their units."""
