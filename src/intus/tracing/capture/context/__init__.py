"""Save and restore what a pass depends on besides its arguments: random state, autograd modes, patches of torch."""
