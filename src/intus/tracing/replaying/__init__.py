"""Run the recorded calls of a trace again, unchanged or with changes."""
