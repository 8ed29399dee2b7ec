"""Mergeable statistics that scores are computed from."""
