"""Collect records until all of a layer and an epoch have arrived, and keep them safe on disk until then."""
