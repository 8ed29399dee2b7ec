"""The objects that a trace returns: Trace, Op, Module, their values, their text and their files."""
