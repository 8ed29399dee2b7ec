"""The functions of PyTorch whose result is uninitialized memory; read without PyTorch too."""

UNINITIALIZED = frozenset(
    {
        "empty",
        "empty_like",
        "new_empty",
        "empty_strided",
        "new_empty_strided",
        "empty_permuted",
        "new",
        "resize",
    }
)
