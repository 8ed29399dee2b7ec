"""Show a graph: as a page, a notebook cell, a widget, a still picture or a text outline."""
