"""Documentation of the scores, and its table of calibration."""
