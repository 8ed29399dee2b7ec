"""Backends: attach to live models of each framework, behind one protocol (``base``)."""
