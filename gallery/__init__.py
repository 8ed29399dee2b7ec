"""A site of known architectures, each a picture that opens as the page to walk in: python -m gallery."""
