"""Random sums and products of residual branches, each written in two orders, and faults in them."""

from random import Random

import torch
from torch import nn

#: The tensors that sums are of: what a block is given, what its branches return, and a parameter.
LEAVES = ("x", "attention", "mlp", "gate", "bias")


class Sum:
    """A sum of products: the factor and the tensors of each.

    Args:
        terms: The terms, each a factor and the names of the tensors.
        scale: What the sum is multiplied by.
    """

    def __init__(self, terms, scale=1.0):
        self.terms, self.scale = terms, scale

    @classmethod
    def drawn(cls, choose):
        names = choose.sample(LEAVES, choose.randint(2, len(LEAVES)))
        if "x" not in names:
            names.append("x")
        terms = [(choose.choice((1, 1, 1, -1, 2, 3, 0.5)), (name,)) for name in names]
        if choose.random() < 0.5:
            terms.append((choose.choice((1, -1)), tuple(choose.sample(LEAVES, choose.choice((2, 3))))))
        if choose.random() < 0.2:  # x * 3 - x * 2
            terms.append((-2, ("x",)))
        return cls(terms, choose.choice((1.0, 1.0, 0.25)))

    def wrong(self, choose):
        """Return the sum with another factor or sign, or without a term."""
        at, terms = choose.randrange(len(self.terms)), list(self.terms)
        factor, names = terms[at]
        fault = choose.choice(("factor", "sign", "missing") if len(terms) > 2 else ("factor", "sign"))
        if fault == "missing":
            del terms[at]
        else:
            terms[at] = (factor * 1.5 if fault == "factor" else -factor, names)
        return Sum(terms, self.scale), fault

    def written(self, choose):
        """Return the text of the sum, in an order and grouping of its own."""
        terms = choose.sample(self.terms, len(self.terms))
        if self.scale != 1.0 and choose.random() < 0.5:
            return _grouped([(factor * self.scale, names) for factor, names in terms], choose)
        text = _grouped(terms, choose)
        return text if self.scale == 1.0 else f"{self.scale} * ({text})"


def _grouped(terms, choose):
    if len(terms) == 1:
        ((factor, names),) = terms
        product = _product(list(names), choose)
        if factor == 1:
            return product
        return f"({product} * {factor!r})" if choose.random() < 0.5 else f"{factor!r} * {product}"
    cut = choose.randrange(1, len(terms))
    left, right = terms[:cut], terms[cut:]
    if choose.random() < 0.5 or all(factor < 0 for factor, _ in right):
        right = [(-factor, names) for factor, names in right]
        return f"({_grouped(left, choose)} - {_grouped(right, choose)})"
    return f"({_grouped(left, choose)} + {_grouped(right, choose)})"


def _product(names, choose):
    choose.shuffle(names)
    if len(names) == 1:
        return names[0]
    cut = choose.randrange(1, len(names))
    return f"({_product(names[:cut], choose)} * {_product(names[cut:], choose)})"


class Block(nn.Module):
    def __init__(self, text, width=8):
        super().__init__()
        self.text, self.norm = text, nn.LayerNorm(width)
        self.attention, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width))
        self.bias = nn.Parameter(torch.empty(width))

    def forward(self, x):
        h = self.norm(x)
        found = {"attention": self.attention(h), "mlp": self.mlp(h), "gate": self.gate(x).sigmoid()}
        return eval(self.text, {}, {"x": x, "bias": self.bias, **found})


class Net(nn.Module):
    """Blocks that add in these ways, and a head."""

    def __init__(self, texts, width=8, seed=0):
        super().__init__()
        self.blocks = nn.ModuleList(Block(text, width) for text in texts)
        self.head = nn.Linear(width, 4)
        torch.manual_seed(seed)
        for p in self.parameters():
            nn.init.normal_(p, std=0.4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def program(seed, blocks=2):
    """Return the texts of a program, a right twin and a wrong one, and the block and kind of its fault."""
    choose = Random(seed)
    sums = [Sum.drawn(choose) for _ in range(blocks)]
    at = choose.randrange(blocks)
    wrong, fault = sums[at].wrong(choose)
    others = [wrong if n == at else one for n, one in enumerate(sums)]
    return (
        [one.written(choose) for one in sums],
        [one.written(choose) for one in sums],
        [one.written(choose) for one in others],
        at,
        fault,
    )
