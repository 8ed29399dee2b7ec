"""Choose the activations to save, convert them, and write them to disk while the model runs."""
