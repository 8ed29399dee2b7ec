"""The Graph as something to look at: a scene for the page, one HTML file, a notebook cell, a text outline."""
