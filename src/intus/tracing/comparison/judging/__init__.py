"""Operations of one pass that are run on the tensors of another."""
