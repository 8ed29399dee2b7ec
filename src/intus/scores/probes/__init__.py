"""Linear classifiers of whole layers, trained from moments, and how predictions are judged."""
