"""Save and restore what a pass depends on: random state, execution context, patches, module attributes."""
