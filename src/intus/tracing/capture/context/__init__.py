"""Save and restore what a pass depends on: random state, autograd modes, patches of torch, module
attributes.
"""
