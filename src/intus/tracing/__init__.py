"""Trace a model: record a forward pass as a graph, save its activations, validate, rerun and compare."""
