"""The demo: train a network, score every layer after every epoch, and inspect its units."""
