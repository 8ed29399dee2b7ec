"""Find the epochs of a training that does not name them.

An epoch begins when the DataLoader of the training is iterated anew (``by_loader.py``), or else when the
first batch comes again (``by_batch.py``), in both cases only after the parameters changed (``changes.py``).
Where the model itself is not called, as inside ``torch.compile``, the steps of its optimizer stand for its
calls (``by_step.py``). A model that is only evaluated, such as an average of another, has its evaluations as
epochs (``by_evaluation.py``). Epoch 0 is the model before its training.
"""

from .finder import EpochFinder
from .log import EpochLog

__all__ = ["EpochFinder", "EpochLog"]
