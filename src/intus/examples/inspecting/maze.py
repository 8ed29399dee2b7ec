"""A small PacMan: random mazes of 15 x 19 cells with dots, a pill and a ghost, and a planner that plays.

A frame is an image of three colors, one pixel per cell. The planner flees from a ghost that is near, chases
one that is scared, and otherwise walks to the nearest dot.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

HEIGHT, WIDTH = 15, 19
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
COLORS = {
    "wall": (0.5, 0.5, 0.5),
    "food": (0.0, 0.0, 1.0),
    "pill": (1.0, 1.0, 1.0),
    "pacman": (1.0, 1.0, 0.0),
    "ghost": (1.0, 0.0, 0.0),
    "scared": (0.0, 1.0, 1.0),
}
_SIGHT = 4  # the planner flees from a ghost that is at most this many steps away
_SCARED = 20  # steps that a pill lasts
_LONGEST = 60  # steps of a game

Cell = tuple[int, int]


@dataclass
class Frames:
    """Frames of many games, in order.

    Attributes:
        images: What the agent gets, (frames, 3, 15, 19).
        moves: The planner's moves, numbers into ``MOVES``.
        game: The number of the game that each frame is of.
        ghost: The row and column of the ghost, (frames, 2).
        pacman: The row and column of PacMan, (frames, 2).
        scared: Whether the ghost is scared.
        walls: Which cells are walls, (frames, 15, 19).
        food: Which cells have a dot, (frames, 15, 19).
    """

    images: np.ndarray
    moves: np.ndarray
    game: np.ndarray
    ghost: np.ndarray
    pacman: np.ndarray
    scared: np.ndarray
    walls: np.ndarray
    food: np.ndarray

    def mask(self, cells: np.ndarray) -> np.ndarray:
        """Return (frames, 15, 19) with 1 at the cell of each frame."""
        out = np.zeros((len(cells), HEIGHT, WIDTH))
        out[np.arange(len(cells)), cells[:, 0], cells[:, 1]] = 1
        return out

    def near(self, cells: np.ndarray, distance: int) -> np.ndarray:
        """Return the mask of the open cells at most ``distance`` rows and columns away."""
        rows, columns = np.indices((HEIGHT, WIDTH))
        away = [np.abs(rows - cells[:, 0, None, None]), np.abs(columns - cells[:, 1, None, None])]
        return (np.maximum(*away) <= distance) & ~self.walls

    def ghost_after(self, steps: int) -> np.ndarray:
        """Return where the ghost is ``steps`` later (negative: earlier); NaN beyond the game."""
        later = np.arange(len(self.game)) + steps
        inside = (later >= 0) & (later < len(self.game))
        later = later.clip(0, len(self.game) - 1)
        inside &= self.game[later] == self.game
        out = self.mask(self.ghost[later])
        out[~inside] = np.nan
        return out


def play(frames: int, seed: int) -> Frames:
    """Let the planner play games in random mazes.

    Args:
        frames: The number of frames; the last game is cut there.
        seed: The seed of mazes and ghosts.

    Returns:
        The frames.
    """
    rng = np.random.default_rng(seed)
    seen: list[tuple[np.ndarray, int, int, Cell, Cell, bool, np.ndarray, np.ndarray]] = []
    game = 0
    while len(seen) < frames:
        seen += _game(rng, game)
        game += 1
    columns = (np.array(column) for column in zip(*seen[:frames], strict=True))
    return Frames(*columns)


def _game(rng: np.random.Generator, game: int) -> list[Any]:
    """Play one game, until it is lost, all is eaten or the time is over."""
    walls = _maze(rng)
    steps = _distances(walls)
    cells = list(steps)
    pacman, ghost, pill = (cells[k] for k in rng.choice(len(cells), 3, replace=False))
    food = ~walls & (rng.random(walls.shape) < 0.7)
    food[pacman] = food[pill] = False
    pill_left, scared, frames = True, 0, []
    for _ in range(_LONGEST):
        if ghost == pacman or not food.any():
            break
        move = _plan(steps, pacman, ghost, scared > 0, food)
        image = _image(walls, food, pill if pill_left else None, pacman, ghost, scared > 0)
        frames.append((image, move, game, ghost, pacman, scared > 0, walls, food.copy()))
        pacman = _neighbor(pacman, move)
        food[pacman] = False
        scared = max(scared - 1, 0)
        if pill_left and pacman == pill:
            pill_left, scared = False, _SCARED
        if ghost != pacman:
            ways = [cell for cell in (_neighbor(ghost, k) for k in range(4)) if cell in steps]
            chases = sorted(ways, key=lambda cell: steps[pacman][cell], reverse=scared > 0)
            ghost = chases[0] if rng.random() < 0.8 else ways[rng.integers(len(ways))]
        if ghost == pacman and scared:
            ghost, scared = cells[rng.integers(len(cells))], 0
    return frames


def _plan(
    steps: dict[Cell, dict[Cell, int]], pacman: Cell, ghost: Cell, scared: bool, food: np.ndarray
) -> int:
    """Return the planner's move; where several are as good, the first."""
    ways = [(k, cell) for k, cell in ((k, _neighbor(pacman, k)) for k in range(4)) if cell in steps]
    if not scared and steps[pacman][ghost] <= _SIGHT:
        return max(ways, key=lambda way: steps[ghost][way[1]])[0]
    goals = [ghost] if scared else list(zip(*np.nonzero(food), strict=True))
    goal = min(goals, key=lambda cell: steps[pacman][cell])
    return min(ways, key=lambda way: steps[goal][way[1]])[0]


def _neighbor(cell: Cell, move: int) -> Cell:
    return cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]


def _maze(rng: np.random.Generator) -> np.ndarray:
    """Return the walls of a random maze: a depth-first maze on the odd cells, whose dead ends are opened."""
    walls = np.ones((HEIGHT, WIDTH), bool)
    stack: list[Cell] = [(1, 1)]
    walls[1, 1] = False
    while stack:
        row, column = stack[-1]
        ways = [(row + 2 * a, column + 2 * b, row + a, column + b) for a, b in MOVES]
        ways = [w for w in ways if 0 < w[0] < HEIGHT and 0 < w[1] < WIDTH and walls[w[0], w[1]]]
        if not ways:
            stack.pop()
            continue
        r, c, between_r, between_c = ways[rng.integers(len(ways))]
        walls[r, c] = walls[between_r, between_c] = False
        stack.append((r, c))
    for row in range(1, HEIGHT, 2):
        for column in range(1, WIDTH, 2):
            closed = [(row + a, column + b) for a, b in MOVES if walls[row + a, column + b]]
            closed = [c for c in closed if 0 < c[0] < HEIGHT - 1 and 0 < c[1] < WIDTH - 1]
            if sum(walls[row + a, column + b] for a, b in MOVES) == 3 and closed:
                walls[closed[rng.integers(len(closed))]] = False
    return walls


def _distances(walls: np.ndarray) -> dict[Cell, dict[Cell, int]]:
    """Return the number of steps between any two open cells."""
    cells = [(int(r), int(c)) for r, c in zip(*np.nonzero(~walls), strict=True)]
    ways = {cell: [n for n in (_neighbor(cell, k) for k in range(4)) if not walls[n]] for cell in cells}
    out = {}
    for cell in cells:
        steps, queue = {cell: 0}, deque([cell])
        while queue:
            here = queue.popleft()
            for there in ways[here]:
                if there not in steps:
                    steps[there] = steps[here] + 1
                    queue.append(there)
        out[cell] = steps
    return out


def _image(
    walls: np.ndarray, food: np.ndarray, pill: Cell | None, pacman: Cell, ghost: Cell, scared: bool
) -> np.ndarray:
    """Return the frame as an image, (3, 15, 19)."""
    image = np.zeros((3, HEIGHT, WIDTH), np.float32)
    image[:, walls] = np.array(COLORS["wall"])[:, None]
    image[:, food] = np.array(COLORS["food"])[:, None]
    if pill is not None:
        image[:, *pill] = COLORS["pill"]
    image[:, *pacman] = COLORS["pacman"]
    image[:, *ghost] = COLORS["scared" if scared else "ghost"]
    return image
