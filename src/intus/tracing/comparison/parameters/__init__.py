"""Parameters of two passes that are compared."""
