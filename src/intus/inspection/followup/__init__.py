"""What a finished table answers about one of its rows: examples, verification, pictures."""
