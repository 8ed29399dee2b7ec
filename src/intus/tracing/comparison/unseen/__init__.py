"""Differences that the values of one pass of each model do not show."""
