"""Judgement of the pairs of two passes: which correspond, and which differ by more than rounding explains."""
