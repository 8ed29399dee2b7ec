"""Bring outputs and labels together: axes, places in the image, symbols of a text."""
