"""The shapes of boxes: frames and headers of open ones, closed ones with their words."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.graph import FAILED
from ..outline import dimensions, duration, size
from .colouring import Colouring, is_paintable
from .figures import count
from .marks import Marks
from .shapes import Curve, Group, Polygon, Rect, Shape, Text, shown
from .stage import HEADER, SMALL, TITLE, Placed, Stage
from .style import BoxStyle, Theme, ink_on, look_of
from .tree import Node

_ROUND = 9.0


class Painter:
    """Draws boxes in a theme's colours, or in an overlay's."""

    def __init__(self, stage: Stage, colours: Theme, painted: Colouring | None, marks: Marks) -> None:
        self.stage, self.colours, self.painted, self.marks = stage, colours, painted, marks

    def frame(self, box: Placed) -> Group:
        """The ground of an open container."""
        colours = self.colours
        fill = colours["frame-a" if box.node.depth % 2 else "frame-b"]
        fold = box.node.kind == "group"
        line = colours["error" if box.node.flags & FAILED else "module-line" if fold else "frame-line"]
        return Group("", [Rect(box.x, box.y, box.width, box.height, 12, fill, line, dashed=fold)])

    def header(self, box: Placed) -> Group:
        """Name, class and parameters of an open container, over everything that is in it."""
        colours, node = self.colours, box.node
        sums = self.painted is not None and self.painted.name  # they are told by what is inside
        fill = "" if sums else self._colour(node)
        ground = fill or colours["frame-b" if node.depth % 2 else "frame-a"]
        ink = ink_on(fill) if fill else colours["text"]
        title, subtitle = self.stage.captions(node, self.stage.figures)
        bar = Rect(box.x + 0.5, box.y + 0.5, box.width - 1, HEADER - 1, 11, ground, "")
        lower = Rect(box.x + 0.5, box.y + HEADER / 2, box.width - 1, HEADER / 2 - 0.5, 0, ground, "")
        rule = Curve([(box.x, box.y + HEADER), (box.x + box.width, box.y + HEADER)], colours["frame-line"], 1)
        after = box.x + 14 + self.stage.measure(title, TITLE, True) + 8
        middle = box.y + HEADER / 2
        words = [
            Text(box.x + 14, middle, title, TITLE, ink, bold=True),
            Text(after, middle, subtitle, SMALL, ink if fill else colours["text-soft"]),
        ]
        return Group(self.facts(node), [bar, lower, rule, *words])

    def box(self, box: Placed) -> Group:
        """A closed box with its words; modules are boxes, what is no module is a pill."""
        node, look = box.node, self.look_painted(box.node)
        radius = _ROUND if node.is_boxed else box.height / 2
        body = Rect(
            box.x, box.y, box.width, box.height, radius, look.fill, look.line, look.weight, look.dashed
        )
        under = list(_stack(box, look)) if node.kind == "group" else []
        return Group(self.facts(node), [*under, body, *self._words(box, look)])

    def look(self, node: Node) -> BoxStyle:
        """How a box looks where no overlay paints it."""
        return look_of(node, self.colours, decides=any(row in self.marks.decisions for row in node.rows))

    def look_painted(self, node: Node) -> BoxStyle:
        """How a closed box looks: in the overlay's colour, dashed where the overlay has no value for it."""
        look, fill = self.look(node), self._colour(node)
        if fill:
            return look._replace(fill=fill, line=fill, ink=ink_on(fill), dashed=False)
        if self.painted and is_paintable(node):
            return look._replace(fill=self.colours["surface"], line=self.colours["line-strong"], dashed=True)
        return look

    def captions(self, node: Node) -> tuple[str, str]:
        """The words on a closed box; the overlay's value stands in place of what a module is."""
        title, subtitle = self.stage.captions(node, self.stage.figures)
        number = self._value(node)
        if self.painted and number is not None and node.is_boxed:
            subtitle = self.painted.words(number)
        return title, subtitle

    def _words(self, box: Placed, look: BoxStyle) -> Iterator[Shape]:
        node, colours = box.node, self.colours
        title, subtitle = self.captions(node)
        x, y = box.x + box.width / 2, box.y + box.height / 2
        if not node.is_boxed:
            yield Text(x, y, title, 12, look.ink, bold=node.kind != "op", anchor="middle")
            return
        if node.children:
            yield Polygon(
                [(box.x + 14, y - 4), (box.x + 18.5, y), (box.x + 14, y + 4)], colours["module-line"]
            )
            x += 9
        soft = colours["text-soft"] if look.ink == colours["text"] else look.ink
        yield Text(x, y - (7.5 if subtitle else 0), title, TITLE, look.ink, bold=True, anchor="middle")
        if subtitle:
            yield Text(x, y + 9.5, subtitle, SMALL, soft, anchor="middle")

    def _value(self, node: Node) -> float | None:
        return self.painted.value(node) if self.painted and is_paintable(node) else None

    def _colour(self, node: Node) -> str:
        number = self._value(node)
        return self.painted.colour(number) if self.painted and number is not None else ""

    def facts(self, node: Node) -> str:
        """What a box is, in a line for a screen reader or a pointer that rests on it."""
        scene, sums = self.stage.tree.scene, self.stage.figures
        parts = [node.address or node.title]
        if node.subtitle and node.kind == "module":
            parts.append(node.subtitle)
        if node.rows:
            metas = [scene["metas"][scene["ops"]["meta"][row]] for row in node.rows[:3]]
            more = ", …" if len(node.rows) > 3 else ""
            parts.append(", ".join(f"{dimensions(meta[0])} {meta[1]}" for meta in metas) + more)
        if sums.parameters[node.id]:
            parts.append(f"{count(sums.parameters[node.id])} parameters")
        if sums.time[node.id]:
            parts.append(duration(sums.time[node.id]))
        if sums.memory[node.id]:
            parts.append(size(sums.memory[node.id]))
        number = self._value(node)
        if self.painted and number is not None and not self.painted.name:
            parts.append(f"{self.painted.title} {self.painted.words(number)}")
        return shown(" · ".join(parts))


def _stack(box: Placed, look: BoxStyle) -> Iterator[Rect]:
    """A fold lies on more of its kind."""
    for inset, drop in ((10, 7.0), (5, 3.5)):
        width = box.width - 2 * inset
        yield Rect(box.x + inset, box.y + drop, width, box.height, _ROUND, look.fill, look.line)
