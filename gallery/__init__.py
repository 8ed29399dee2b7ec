"""A site of known architectures, with a picture and an interactive page for each: ``python -m gallery``."""
