"""A model whose modules or parameters are changed after ``probe`` is recorded as it is."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.data import DataLoader, TensorDataset

import intus
from intus.monitoring import probe
from intus.serving.run import Server

ROWS = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
#: The epoch before which, or in the middle of which, the model is changed.
CHANGED = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return a server."""
    with Server(
        database=tmp_path_factory.mktemp("changed") / "x.db", port=0, scores="mean,norm,linear_f1"
    ) as server:
        yield server


class LoRA(nn.Module):
    """An adapter around a frozen layer."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A, self.B = (
            nn.Linear(base.in_features, 2, bias=False),
            nn.Linear(2, base.out_features, bias=False),
        )

    def forward(self, x):
        return self.base(x) + self.B(self.A(x))


def wrap(model):
    model[0] = LoRA(model[0])


def wrap_several(model):
    for name, module in [*model.named_children()]:
        if isinstance(module, nn.Linear):
            setattr(model, name, LoRA(module))


def insert(model):
    model.insert(1, nn.Linear(6, 6))
    model.insert(2, nn.Tanh())


def append(model):
    model.append(nn.Linear(2, 2))


def swap(model):
    model[0], model[2] = model[2], model[0]


def delete(model):
    del model[2]


def replace(model):
    model[2] = nn.Linear(6, 6)


def tie(model):
    model[2].weight = model[0].weight


def new_parameters(model):
    model[2].weight = nn.Parameter(torch.randn(6, 6))


def assign(model):
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)


def rename(model):
    prune.l1_unstructured(model[2], "weight", 0.5)


SURGERIES = [wrap, wrap_several, insert, append, swap, delete, replace, tie, new_parameters, assign, rename]
#: Those that leave every module where it is.
OF_PARAMETERS = [tie, new_parameters, assign]


class Training:
    """A training whose model is changed, and what hooks of its own see of each address in each epoch."""

    def __init__(self, server, name, surgery, *, before_any=False, within=False, **options):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 2))
        self.surgery, self.truth = surgery, defaultdict(list)
        self.steps = defaultdict(list)
        self.watch = probe(
            self.model, server.host, server.port, run=name, block=True, **(options or {"kinds": ("output",)})
        )
        self.uses_set = "probe_set" in options
        if before_any:
            surgery(self.model)
        self.optimize()
        for epoch in (1, 2, 3):
            if epoch == CHANGED and not before_any and not within:
                self.change()
            self.train(epoch, within=within and epoch == CHANGED)
        self.watch.remove()
        assert self.watch.flush()
        self.status = self.watch.status()
        self.run = intus.runs(f"{server.host}:{server.port}")[name]

    def optimize(self):
        self.optimizer = torch.optim.SGD([p for p in self.model.parameters() if p.requires_grad], 0.5)

    def change(self):
        self.surgery(self.model)
        self.optimize()

    def train(self, epoch, *, within):
        for number, (x, y) in enumerate(DataLoader(TensorDataset(ROWS, LABELS), 10, shuffle=True)):
            if within and number == 2:
                self.change()
            handles = [] if self.uses_set else self.listen(self.model, epoch)
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(x), y).backward()
            for handle in handles:
                handle.remove()
            before = {n: p.detach().clone() for n, p in self.model.named_parameters()}
            self.optimizer.step()
            for name, p in self.model.named_parameters():
                if p.requires_grad:
                    self.steps["parameter_grad", name, epoch].append(norm(p.grad))
                    self.steps["update", name, epoch].append(norm(p - before[name]))
        for name, p in self.model.named_parameters():
            self.steps["parameter", name, epoch] = [norm(p)]
        if self.uses_set:
            handles = self.listen(self.model.eval(), epoch)
            with torch.no_grad():
                self.model(ROWS)
            self.model.train()
            for handle in handles:
                handle.remove()

    def listen(self, model, epoch):
        def keep(name, module, given, made):
            self.truth[name, epoch].append(made.detach().double())

        return [module.register_forward_hook(partial(keep, name)) for name, module in model.named_modules()]

    def recorded(self, kind="output", score="mean"):
        scores = self.run.scores(score=score)
        scores = scores[(scores.kind == kind) & (scores.epoch > 0)]
        return dict(zip(zip(scores.address, scores.epoch, strict=True), scores.value, strict=True))

    def notes(self):
        scores = self.run.scores(score="mean")
        scores = scores[scores.note != ""]
        return dict(zip(zip(scores.address, scores.epoch, strict=True), scores.note, strict=True))


def norm(tensor):
    return float(tensor.detach().norm())


def check_outputs(training):
    """Compare every recorded mean with that of the module that the address had."""
    expected = {place: float(torch.cat(made).mean()) for place, made in training.truth.items()}
    got = training.recorded()
    assert got.keys() == expected.keys()
    assert got == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("source", ["own passes", "probe set"])
@pytest.mark.parametrize("surgery", SURGERIES)
def test_outputs_are_of_the_module_at_the_address(server, surgery, source):
    options = {"probe_set": (ROWS, {"y": LABELS})} if source == "probe set" else {}
    training = Training(server, f"{surgery.__name__} {source}", surgery, **options)
    check_outputs(training)
    said = [fault for fault in training.status["faults"] if "has other modules, seen in epoch 2" in fault]
    assert len(said) == (surgery not in [*OF_PARAMETERS, rename])
    assert training.status["silent"] == training.status["never_called"] == []
    assert not any("incomplete" in note for note in training.notes().values())
    assert list(training.watch.operations) == [name for name, _ in training.model.named_modules()]


@pytest.mark.parametrize("source", ["own passes", "probe set"])
@pytest.mark.parametrize("surgery", [wrap_several, insert, swap])
def test_model_that_was_changed_before_its_first_call(server, surgery, source):
    options = {"probe_set": (ROWS, {"y": LABELS})} if source == "probe set" else {}
    training = Training(server, f"early {surgery.__name__} {source}", surgery, before_any=True, **options)
    check_outputs(training)


@pytest.mark.parametrize("surgery", SURGERIES)
def test_gradients_and_updates_are_of_the_parameters_at_the_address(server, surgery):
    kinds = ("parameter", "parameter_grad", "update")
    training = Training(server, f"steps {surgery.__name__}", surgery, kinds=kinds)
    for kind in kinds:
        expected = {key[1:]: np.mean(norms) for key, norms in training.steps.items() if key[0] == kind}
        got = training.recorded(kind, "norm")
        assert got.keys() == expected.keys(), kind
        assert got == pytest.approx(expected, rel=1e-4, abs=1e-6), kind
    said = [fault for fault in training.status["faults"] if "has other modules" in fault]
    assert len(said) == (surgery not in [new_parameters, assign])
    assert not training.status["silent"]
    assert not any("incomplete" in fault for fault in training.status["faults"])


@pytest.mark.parametrize(
    ("surgery", "words"),
    [
        (wrap, "'0' is another module; '0.base', '0.A' and '0.B' are new."),
        (insert, "'1', '2', '3' and 1 more are other modules; '5' and '6' are new."),
        (append, "'5' is new."),
        (delete, "'2' and '3' are other modules; '4' is gone."),
        (swap, "'0' and '2' are other modules."),
    ],
)
def test_warning_names_the_addresses(server, surgery, words):
    training = Training(server, f"said {surgery.__name__}", surgery)
    sentence = f"Sequential has other modules, seen in epoch 2: {words}"
    assert any(sentence in one for one in training.status["faults"])


def test_scores_of_another_module_have_a_note(server):
    notes = Training(server, "noted", swap).notes()
    assert notes == {("0", 2): "another module than in epoch 1", ("2", 2): "another module than in epoch 1"}


def test_epoch_of_two_modules_has_a_note(server):
    training = Training(server, "within", replace, within=True)
    check_outputs(training)
    assert training.notes() == {("2", 2): "another module took this address inside of the epoch"}


@pytest.mark.parametrize(
    "which", ["0", ["Linear"], lambda model, operation: operation.address.startswith("0")]
)
def test_choice_holds_for_new_modules(server, which):
    training = Training(server, f"which {type(which).__name__}", wrap, which=which)
    got = {address for address, epoch in training.recorded() if epoch == 3}
    linear = {"0.base", "0.A", "0.B", "2", "4"}
    expected = {"0"} if which == "0" else linear if which == ["Linear"] else {"0", "0.base", "0.A", "0.B"}
    assert got == expected


def test_tensors_of_functional_call_are_no_change(server):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2))
    kinds = ("output", "parameter_grad")
    with probe(model, server.host, server.port, run="functional", kinds=kinds, block=True) as watch:
        hooks = [*model[0].weight._post_accumulate_grad_hooks]
        for _ in range(2):
            given = {name: p.detach().clone() for name, p in model.named_parameters()}
            torch.func.functional_call(model, given, (ROWS,))
            model(ROWS).sum().backward()
        assert [*model[0].weight._post_accumulate_grad_hooks] == hooks
    assert watch.status()["troubles"] == 0


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_model_with_a_scripted_part(server):
    torch.manual_seed(0)
    model = nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.ReLU())), nn.Linear(6, 2))
    with probe(model, server.host, server.port, run="scripted", block=True) as watch:
        model(ROWS)
        model.insert(1, nn.Linear(6, 6))
        model(ROWS)
    assert watch.operations == ("", "1", "2")
    assert watch.status()["troubles"] == 0


def test_last_state_of_a_changed_model_that_dies(server):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    watch = probe(model, server.host, server.port, run="dies", probe_set=(ROWS, {"y": LABELS}))
    for watch.epoch in (1, 2):
        if watch.epoch == CHANGED:
            wrap(model)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.5)
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(ROWS), LABELS).backward()
            optimizer.step()
    expected = float(model[0](ROWS).detach().mean())
    del model, optimizer
    assert watch.flush()
    scores = intus.runs(f"{server.host}:{server.port}")["dies"].scores(score="mean")
    scores = scores[scores.address == "0"]
    assert scores.epoch.tolist() == [0, 1, 2]
    assert scores.value.iloc[-1] == pytest.approx(expected, rel=1e-5)
    assert scores.note.tolist() == ["", "", "another module than in epoch 1"]


class Flip(nn.Module):
    """A layer with its rows in another order."""

    def forward(self, x):
        return x.flip(0)


def test_order_of_rows_is_tested_again(server):
    options = {"probe_set": (ROWS, {"y": LABELS})}
    training = Training(server, "flipped", lambda model: model.insert(1, Flip()), **options)
    scores = training.run.scores(score="linear_f1", target="y").dropna(subset="value")
    assert set(scores[scores.epoch == 1].address) == {"", "0", "1", "2", "3", "4"}
    assert set(scores[scores.epoch == CHANGED].address) == {"0"}
    assert any("do not keep the order of rows" in fault for fault in training.status["faults"])


def test_hooks_are_removed_from_all_modules(server):
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    replaced = model[2]
    watch = probe(model, server.host, server.port, run="removed", kinds=("input", "output", "parameter_grad"))
    model(ROWS).sum().backward()
    model[2] = nn.Linear(6, 3)
    model.append(nn.Linear(3, 2))
    model(ROWS).sum().backward()
    assert not {**replaced._forward_hooks, **replaced._forward_pre_hooks}
    assert replaced.weight._post_accumulate_grad_hooks is None
    watch.remove()
    for module in model.modules():
        assert not {**module._forward_hooks, **module._forward_pre_hooks}
    assert all(p._post_accumulate_grad_hooks is None for p in model.parameters())


def test_sentences_are_few_in_a_training_that_changes_its_model_in_each_pass(server):
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    with probe(model, server.host, server.port, run="many", block=True) as watch:
        for _ in range(30):
            model(ROWS)
            model.append(nn.Linear(6, 6))
    said = [fault for fault in watch.status()["faults"] if "has other modules" in fault]
    assert len(said) == 8
    assert said[-1].endswith("Further changes are recorded likewise and are not said.")
