"""Trace, validate, save and load hundreds of architectures; see ``python -m sweep --help``."""
