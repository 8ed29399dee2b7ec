"""Scores that compare layers with one another."""
