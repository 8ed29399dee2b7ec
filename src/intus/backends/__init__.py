"""How intus attaches to a live model: a small protocol, and one module per framework behind it."""
