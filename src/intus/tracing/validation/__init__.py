"""Validate activations: replay each operation and compare bit for bit."""
