"""Record what runs while a model runs: module calls, operations, and the activations to save.

``interpose`` sees every call, ``recorder`` dispatches it to ``operations`` and ``module_calls``, and the
results are a ``Recording`` (integers) and ``Values`` (tensors). Everything here works on live tensors during
the pass. Nothing here depends on the code that builds a graph from a recording afterwards.
"""
