"""Compare two traces and find the first operation where they differ."""
