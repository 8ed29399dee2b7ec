"""intus: see inside any neural network."""
