"""Tests of layers and passes: the paper's figure, its three rules, and brute force for the third."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from zoo_models import make

import intus
from intus.core.analysis.loops import _runs


class Figure3A(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = torch.cos(x)
        x = self.fc(x)
        x = x + 1
        x = torch.sin(x)
        x = torch.cos(x)
        x = self.fc(x)
        return x + 1


def test_figure_3a_neighbors_of_shared_parameters():
    trace = intus.trace(Figure3A(), torch.ones(2, 4))
    assert [op.label for op in trace.ops] == [
        "cos_1_1:1",
        "linear_1_2:1",
        "add_1_3:1",
        "sin_1_4",
        "cos_1_1:2",
        "linear_1_2:2",
        "add_1_3:2",
    ]


def test_figure_3b_back_to_back_repeats():
    def model(x):
        for _ in range(2):
            x = torch.relu(torch.cos(x)) * 2
        x = torch.tan(x)
        return torch.relu(torch.cos(x)) * 2

    labels = [op.label for op in intus.trace(model, torch.ones(2)).ops]
    assert labels == [
        *("cos_1_1:1", "relu_1_2:1", "mul_1_3:1", "cos_1_1:2", "relu_1_2:2", "mul_1_3:2"),
        *("tan_1_4", "cos_2_5", "relu_2_6", "mul_2_7"),
    ]


LETTERS = {"X": torch.cos, "Y": torch.relu, "Z": torch.tanh, "A": torch.sin, "B": torch.exp}


def passes(word):
    """Return the number of passes of each layer of a chain of functions, in the order of the layers."""

    def model(x):
        for letter in word:
            x = LETTERS[letter](x)
        return x

    return [len(layer) for layer in intus.trace(model, torch.ones(2), save="none").layers.values()]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("XYZXYZXYZ", [3, 3, 3]),
        ("XYZAXYZBXYZ", [1] * 11),
        ("AXYXYB", [1, 2, 2, 1]),
        ("XYZXY", [1] * 5),
        ("XYXYX", [2, 2, 1]),
        ("XXYXXYYXXYXXYY", [2] * 7),  # contains shorter repeats; the longest is the loop
        ("X", [1]),
    ],
)
def test_rule_three(word, expected):
    assert passes(word) == expected


def brute_force_runs(word):
    """Return every run of two or more whole periods, by testing every period and position."""
    found = set()
    for period in range(1, len(word) // 2 + 1):
        start = 0
        while start < len(word) - period:
            stop = start
            while stop < len(word) - period and word[stop] == word[stop + period]:
                stop += 1
            if stop - start >= period:
                found.add((start, start + ((stop - start) // period + 1) * period, period))
            start = max(stop, start + 1)
    return sorted(found, key=lambda run: (run[0] - run[1], run[2], run[0]))


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.integers(0, n - 1), max_size=40)))
def test_runs_equal_brute_force(word):
    assert _runs(np.array(word, dtype=np.int64)) == brute_force_runs(word)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=9), st.integers(2, 5), st.integers(0, 8))
def test_repeated_word_is_found_in_any_context(word, times, before):
    whole = [-1 - i for i in range(before)] + word * times + [-100]
    assert (before, before + len(word) * times) in {
        (start, stop) for start, stop, period in _runs(np.array(whole)) if len(word) % period == 0
    }


@given(st.text(alphabet="XYZ", min_size=1, max_size=14))
def test_layers_of_random_chains(word):
    group = list(range(len(word)))
    free = [True] * len(word)
    for start, stop, period in brute_force_runs(word):
        if all(free[start:stop]):
            for at in range(start, stop):
                free[at] = False
                group[at] = start + (at - start) % period
    assert passes(word) == [group.count(first) for first in dict.fromkeys(group)]


def test_parallel_branches_are_no_loop():
    def model(x):
        return torch.cos(x) + torch.cos(x)

    assert [op.label for op in intus.trace(model, torch.ones(2)).ops] == ["cos_1_1", "cos_2_2", "add_1_3"]


def test_lstm_loop_has_one_pass_per_step():
    model, x = make("loop_lstm")
    layers = intus.trace(model, x, save="none").layers
    assert {len(layer) for name, layer in layers.items() if not name.startswith("new_zeros")} == {5}
    assert len(layers) == 18


def test_heads_with_separate_parameters_are_separate_layers():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.heads = nn.Linear(4, 4), nn.ModuleList(nn.Linear(4, 2) for _ in range(3))

        def forward(self, h):
            out = []
            for head in self.heads:
                h = torch.tanh(self.cell(h))
                out.append(head(h))
            return out

    counts = {name: len(ops) for name, ops in intus.trace(Heads(), torch.ones(1, 4)).layers.items()}
    assert counts == {"linear_1_1": 3, "tanh_1_2": 3, "linear_2_3": 1, "linear_3_4": 1, "linear_4_5": 1}


def test_functions_with_the_same_name_are_not_alike():
    labels = [op.label for op in intus.trace(lambda x: (1 - (x - 1)) - 1, torch.ones(2)).ops]
    assert labels == ["sub_1_1", "sub_2_2", "sub_3_3"]


def test_operations_with_different_arguments_are_not_alike():
    labels = [op.label for op in intus.trace(lambda x: ((x + 1) + 2) + 3, torch.ones(2)).ops]
    assert labels == ["add_1_1", "add_2_2", "add_3_3"]


def test_alexnet_labels_equal_the_paper():
    model, x = make("alexnet")
    trace = intus.trace(model, x)
    assert trace["conv2d_3_7"] == trace["features.6"] == trace["conv2d_3"]
    assert trace["features.6"].output_of == ["features.6"]
    assert trace["conv2d_3_7"].modules == ["", "features", "features.6"]


def test_passes_of_a_shared_module():
    model, x = make("shared")
    trace = intus.trace(model, x)
    assert trace["fc:1"] == trace["linear_1_1:1"] == trace["fc"]
    assert trace["fc:2"].label == "linear_1_1:2"
    assert trace["fc:2"].module == "fc:2"
    assert trace["fc:2"].pass_number == 2
