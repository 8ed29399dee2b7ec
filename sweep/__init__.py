"""Hundreds of architectures, each traced, validated, saved and loaded; see ``python -m sweep --help``."""
