"""Score complete data points against the registered targets."""
