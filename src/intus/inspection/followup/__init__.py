"""Examine a row of a finished table: examples, verification, pictures."""
