"""The concepts that every package shares: addresses, selections, graphs, records, results and errors.

Needs only numpy and the standard library.
"""
