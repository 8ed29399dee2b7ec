"""Print what every registered score is, as Markdown: ``python -m intus.scores``."""

from .documentation.document import document

print(document(), end="")
