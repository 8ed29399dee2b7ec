"""``check_export`` of models that draw random numbers as they are used: nothing is blamed on rounding."""

import copy
import warnings

import pytest
import torch
from torch import nn

import intus


class Noisy(nn.Module):
    """Adds noise to a hidden layer; its linear layers before and behind do not draw."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw
        self.before, self.behind = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.relu(self.before(x))
        return self.behind(hidden + self.draw(hidden))


class Autoencoder(nn.Module):
    """A variational autoencoder, which returns its reconstruction and the mean."""

    def __init__(self):
        super().__init__()
        self.encode, self.mean, self.log_var = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.decode, self.norm = nn.Linear(4, 6), nn.LayerNorm(6)

    def forward(self, x):
        hidden = torch.relu(self.encode(x))
        mean, log_var = self.mean(hidden), self.log_var(hidden)
        drawn = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        return self.norm(self.decode(drawn)), mean


MODELS = {
    "autoencoder": (Autoencoder, "randn_like_1"),
    "rand_like": (lambda: Noisy(torch.rand_like), "rand_like_1"),
    "little noise": (lambda: Noisy(lambda h: 1e-4 * torch.rand_like(h)), "rand_like_1"),
    "bernoulli": (lambda: Noisy(lambda h: torch.bernoulli(torch.sigmoid(h))), "bernoulli_1"),
}


@pytest.fixture(scope="module", params=[True, False], ids=["dynamo", "older"])
def exported(request, tmp_path_factory):
    """Return a function that returns a model, its input and its file."""
    made = {}

    def of(name):
        if name not in made:
            torch.manual_seed(0)
            model, x = MODELS[name][0]().eval(), torch.randn(4, 6)
            file = tmp_path_factory.mktemp("files") / "net.onnx"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the exporter
                torch.onnx.export(model, (x,), file, dynamo=request.param, verbose=False)
            made[name] = model, x, file
        return made[name]

    return of


@pytest.mark.parametrize("name", MODELS)
def test_random_numbers_are_the_reason(name, exported):
    model, x, file = exported(name)
    check = intus.check_export(model, file, x)
    text = str(check)
    assert check.verdict == "not proven", text
    assert f"{MODELS[name][1]}_" in text
    assert "draws random numbers, which are others in each run" in text
    assert "rounding takes" not in text
    assert "amplified" not in text
    assert "compute the same on these inputs, and not where" not in text


def test_output_before_the_random_numbers_is_within_rounding(exported):
    text = str(intus.check_export(*(exported("autoencoder")[i] for i in (0, 2, 1))))
    (drawn,) = [line for line in text.splitlines() if line.startswith("output_1:")]
    assert drawn.endswith("by random numbers.")
    assert not any(line.endswith("by random numbers.") for line in text.splitlines() if "output_2" in line)


@pytest.mark.parametrize(
    ("name", "layer"), [("autoencoder", "decode"), ("rand_like", "behind"), ("rand_like", "before")]
)
def test_changed_layer_beside_the_random_numbers_differs(name, layer, exported):
    model, x, file = exported(name)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.get_submodule(layer).weight[0] *= 1.1
    check = intus.check_export(other, file, x)
    assert check.verdict == "differs", str(check)
    assert check.first["module"] == layer


def test_other_epsilon_behind_the_random_numbers_differs(exported):
    model, x, file = exported("autoencoder")
    other = copy.deepcopy(model)
    other.norm.eps = 0.01
    assert intus.check_export(other, file, x).first["module"] == "norm"
