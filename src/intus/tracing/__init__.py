"""What runs in a model: capture -> assemble -> loops, branches -> Trace."""
