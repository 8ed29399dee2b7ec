"""What runs in a model: interpose -> recorder -> assemble -> loops -> Trace."""
