"""Tell a loop whose body draws from another loader from an iterator that was left open."""

from __future__ import annotations

from typing import NamedTuple

from ...backends.feeds import Feed, Origin

#: A loop gives a batch at least for so many of those that its body draws from another iteration.
_PER_BATCH = 2


class Pair(NamedTuple):
    """Two iterations under way: the inner one began when the outer one had given batches.

    The outer one may be that of a loop in whose body the inner one is, which may be kept over several of its
    epochs. Or it is only open, as after ``batches = iter(loader); next(batches)``, beside the loop over the
    inner one. The batches that it gives from then on tell which.

    Attributes:
        outer: The iteration that began first.
        inner: The other one.
        given: The number of batches of the outer one before the first of the inner one.
        stepped: The number of steps of optimizers before that.
    """

    outer: Origin
    inner: Origin
    given: int
    stepped: int

    @classmethod
    def begins(cls, feed: Feed, outer: Origin, inner: Origin) -> Pair:
        """Return two of which a call has the first batch of the inner one."""
        has_followed = outer.iteration in feed.sources(inner.came)
        return cls(outer, inner, feed.given(outer.iteration) - has_followed, feed.stepped())

    def gave(self, feed: Feed) -> int:
        """Return how many batches the outer one gave since then."""
        return feed.given(self.outer.iteration) - self.given

    def is_along(self, feed: Feed) -> bool:
        """Return whether batches of both came along with each other, as in the body of a loop."""
        gave = self.gave(feed)
        is_often = _PER_BATCH * gave >= feed.given(self.inner.iteration)
        return gave > 0 and (is_often or self._has_ended(feed))

    def is_open_only(self, feed: Feed) -> bool:
        """Return whether the inner one has passed, and the outer one was only open meanwhile.

        If that has ended, the inner one may have begun in the last body of its loop, before one step.
        """
        is_last = self._has_ended(feed) and feed.stepped() - self.stepped <= 1
        return not feed.is_open(self.inner.iteration) and not is_last and not self.is_along(feed)

    def may_be_open_only(self, feed: Feed) -> bool:
        """Return whether it is so as far as seen, though the inner one may not have passed yet."""
        is_several = feed.stepped() - self.stepped > 1
        return is_several and not self._has_ended(feed) and not self.is_along(feed)

    def _has_ended(self, feed: Feed) -> bool:
        return feed.is_over(self.outer.iteration) and not feed.is_open(self.outer.iteration)
