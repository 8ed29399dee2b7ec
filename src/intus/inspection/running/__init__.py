"""Run a plan over models: one pass for each, here or in workers."""
