"""Query scores in SQL: SELECT … INSPECT … FROM … WHERE …, where WHERE decides what is computed."""

from .run import query

__all__ = ["query"]
