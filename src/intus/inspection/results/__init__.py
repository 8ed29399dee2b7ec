"""What an inspection found: its table, its store, and what can be asked of a row."""
