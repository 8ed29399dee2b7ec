"""The results of a trace: Trace, Op and Module, their summaries as text, and their files."""
