"""Values and arguments of operations, and how far apart two of them are."""
