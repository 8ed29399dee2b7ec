"""Two traces side by side: pairs of module calls, marks on boxes, errors."""

import copy

import pytest
import torch
from torch import nn

from intus import load, trace, view
from intus.core.analysis.alignment import align
from intus.core.errors import InputError
from intus.viewing.side_by_side import MARKS, Sides, partners


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(6, 5), nn.Linear(5, 5)

    def forward(self, x):
        return self.g(self.g(torch.relu(self.f(x))))


class Nested(nn.Module):
    """Flat with another structure, and an additional dropout."""

    def __init__(self, like):
        super().__init__()
        self.body = nn.Sequential(copy.deepcopy(like.f), nn.ReLU(), nn.Dropout(0.0))
        self.head = copy.deepcopy(like.g)

    def forward(self, x):
        return self.head(self.head(self.body(x)))


@pytest.fixture
def flat():
    torch.manual_seed(0)
    return Flat().eval()


def words(names):
    return {name: MARKS[mark] for name, (mark, _, _) in names.items()}


def test_calls_of_one_architecture_are_partners(flat):
    graph = trace(flat, torch.ones(2, 6)).graph
    found = partners(graph, graph, align(graph, graph))
    assert found == {call: call for call in range(len(graph.calls))}


def test_calls_of_another_implementation_are_paired(flat):
    x = torch.randn(3, 6)
    page = view(flat, x, beside=Nested(flat).train())
    a, b = page.marks()["names"]
    assert [a[name][1] for name in ("f", "g:1", "g:2")] == ["body.0", "head:1", "head:2"]
    assert [b[name][1] for name in ("body.0", "head:1", "head:2")] == ["f", "g:1", "g:2"]
    assert set(words(a).values()) == {"equal"}
    assert words(b)["body.2"] == "only here"
    assert b["body.2"][1] == ""
    assert words(b)["body"] == "only here"
    assert words(b)["body.1"] == "equal"
    assert page.marks()["first"] == ["", ""]


def test_module_has_the_worst_verdict_inside(flat):
    torch.manual_seed(0)
    a = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    b = copy.deepcopy(a)
    with torch.no_grad():
        b[1][0].bias += 1
    found = view(a, torch.randn(2, 4), beside=b).marks()
    for side in found["names"]:
        verdicts = words(side)
        assert verdicts["0"] == verdicts["0.1"] == verdicts["input_1"] == "equal"
        assert verdicts["1"] == verdicts["1.0"] == verdicts["linear_2_3"] == "first difference"
        assert verdicts["1.1"] == verdicts["output_1"] == "differs"
    assert found["first"] == ["linear_2_3", "linear_2_3"]
    number = found["names"][0]["tanh_2_4"][2]
    assert found["figures"]["max_abs"][number] > 0.01
    assert found["figures"]["shape_a"][number] == [2, 4]
    assert "They diverge at linear_2_3 in 1.0" in found["summary"]


def test_other_dtype_is_close_and_loaded_traces_compare(flat, tmp_path):
    x = torch.randn(3, 6)
    t = trace(flat, x)
    t.save(tmp_path / "t.intus")
    read = view(t, beside=load(tmp_path / "t.intus")).marks()
    assert set(words(read["names"][0]).values()) == {"equal"}
    double = trace(copy.deepcopy(flat).double(), x.double())
    assert words(view(t, beside=double).marks()["names"][0])["f"] == "close"


def test_models_run_with_the_same_inputs_and_random_numbers():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    state = torch.get_rng_state()
    found = view(model, torch.ones(4, 8), beside=copy.deepcopy(model)).marks()
    assert set(words(found["names"][0]).values()) == {"equal"}
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_view_beside_errors(flat, tmp_path):
    x = torch.ones(1, 6)
    t = trace(flat, x)
    page = view(t, beside=t)
    assert isinstance(page, Sides)
    assert "Flat and Flat" in repr(page)
    assert "iframe" in page._repr_html_()
    for wrong, message in (
        (lambda: view(t, beside=3), "beside is of type int"),
        (lambda: view(t.graph, beside=t), "The first argument is of type Graph"),
        (lambda: view(t, beside=flat), "a model without inputs"),
        (lambda: view(t, beside=t, overlay="tme"), "overlay='tme' cannot.*Did you mean 'time'"),
        (lambda: view(t, beside=t, overlay={"f": 1.0}), "cannot color two graphs"),
        (lambda: view(t, beside=trace(flat, x, save="none")), "b has no values"),
        (lambda: page.save(tmp_path / "two.svg"), r"'two.svg' cannot be"),
        (lambda: page.save(tmp_path / "two.html", dark=True), r"\['dark'\] cannot be"),
        (page.widget, "one graph"),
    ):
        with pytest.raises(InputError, match=message):
            wrong()
