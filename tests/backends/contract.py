"""The tests that the backend of every framework must pass, judged by values that the framework itself gives.

A test module of a framework describes one small training per way to train with it as a ``Subject``, derives
a class from ``BackendContract``, and gives it the subjects by a fixture::

    class TestContract(BackendContract):
        @pytest.fixture(params=[GluonSubject(), ModuleSubject()], ids=lambda one: one.name)
        def subject(self, request):
            return request.param
"""

from __future__ import annotations

import gc
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

import intus
from intus.backends.base import Backend, Handle, for_model, modules_graph
from intus.core.errors import InputError
from intus.core.projection import project
from intus.core.record import KINDS
from intus.monitoring.tap import ModelTap

#: Rows of a batch, features of a row, and classes: the sizes of ``batch``.
ROWS, FEATURES, CLASSES = 16, 6, 3
#: How far a captured value may be from the framework's own.
TOLERANCE = 1e-6


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs (float32) and labels (int64) of a step of the training; each step has others."""
    random = np.random.default_rng(step)
    return random.normal(size=(ROWS, FEATURES)).astype(np.float32), random.integers(0, CLASSES, ROWS)


class Training(NamedTuple):
    """The result of a training.

    Attributes:
        model: The trained model; another object than before where models are values.
        losses: The loss of each step.
        state: Parameters, and whatever else the training changes, as arrays in a fixed order.
    """

    model: Any
    losses: list[Any]
    state: list[np.ndarray]

    def bits(self) -> list[bytes]:
        """Return losses and state as bytes."""
        return [np.asarray(one).tobytes() for one in (*self.losses, *self.state)]


Step = Callable[..., Any]


def unchanged(step: Step) -> Step:
    """Return the step itself."""
    return step


class Subject:
    """One way to train a small model with a framework.

    Attributes:
        name: What the way is called in the names of tests.
        kinds: The kinds that can be captured this way. The others must be refused.
        calls: The addresses of all operations that run, and how often each runs in one pass. One of them
            should run twice, where a framework allows that.
        mode: The mode that the backend gives during training.
        ordered: Whether the backend can tell if epochs begin with the same batch.
        records_graph: Whether ``graph_recorder`` records the graph of the first call.
        parameters_at_end: Whether ``parameter`` is as it is at the end of an epoch. Where a model is a value,
            it is as before the last recorded step.
    """

    name: str
    kinds: tuple[str, ...]
    calls: Mapping[str, int]
    mode = "train"
    ordered = True
    records_graph = True
    parameters_at_end = True

    def new(self) -> Any:
        """Return a new model, not compiled or built twice, with the same parameters each time."""
        raise NotImplementedError

    def through(self, watch: Any) -> Callable[[Step], Step]:
        """Return what the step must pass through: ``watch.through`` for JAX, where ``watch`` is an
        attachment or a probe. Elsewhere the step remains unchanged.
        """
        return unchanged

    def train(
        self,
        model: Any,
        steps: int,
        *,
        through: Callable[[Step], Step] = unchanged,
        after: Callable[[int], None] = lambda step: None,
    ) -> Training:
        """Seed the framework, and train as a user would, with ``batch(0)``, ``batch(1)``, and so on.

        Args:
            model: The model.
            steps: The number of steps. Each is one pass.
            through: Wraps the step once, before the first one.
            after: Called after each step with its number.
        """
        raise NotImplementedError

    def expected(self) -> Mapping[tuple[str, str], np.ndarray]:
        """Return the values of the first step of ``train`` for a new model, computed without intus.

        Returns:
            Arrays by kind and address (``("output", "fc")``, ``("grad_output", "fc:2")``,
            ``("parameter_grad", "fc.weight")``): every output of an operation, and all parameters and
            gradients that can be computed.
        """
        raise NotImplementedError

    def parameters(self, model: Any) -> Mapping[str, np.ndarray]:
        """Return copies of a model's parameters by address, if the kind "parameter" can be captured."""
        raise NotImplementedError

    def evaluated(self) -> np.ndarray:
        """Return what a new model computes from the inputs ``data()`` in evaluation mode, without intus."""
        raise NotImplementedError

    def data(self) -> Any:
        """Return inputs as a user passes them to a probe set: an array, a tuple or a mapping."""
        return batch(0)[0]

    def footprint(self, model: Any) -> Any:
        """Return everything that attaching could change, to compare by ``==``.

        Attributes, classes and hooks of the model and its parts, and the size of its graph; hooks that the
        framework keeps itself.
        """
        raise NotImplementedError


class Collect:
    """A tap that copies everything that ``wants`` accepts.

    Args:
        wants: Which operations to observe, by pass and address.
        starts: Which passes to observe.
        backend: If given, it is asked for the mode, rows and order of each pass.
    """

    def __init__(
        self,
        wants: Callable[[int, str], bool] = lambda number, address: True,
        starts: Callable[[int], bool] = lambda number: True,
        backend: Backend | None = None,
        model: Any = None,
    ) -> None:
        self._wants, self._starts, self._backend, self._model = wants, starts, backend, model
        self.passes, self.ended = 0, 0
        self.offered: list[list[str]] = []
        self.seen: list[dict[tuple[str, str], np.ndarray]] = []  # of each observed pass
        self.tensors: dict[tuple[str, str], Any] = {}  # of the first: shape, nbytes, 2 rows, projected
        self.errors: list[Exception] = []
        self.modes: list[str] = []
        self.rows: list[int | None] = []
        self.orders: list[bytes | str | None] = []
        self._lock = threading.Lock()

    def on_forward_start(self, inputs: Any) -> bool:
        number, self.passes = self.passes, self.passes + 1
        if not self._starts(number):
            return False
        if self._backend is not None:
            self.modes.append(self._backend.mode(self._model))
            self.rows.append(self._backend.rows(inputs, 0))
            self.orders.append(self._backend.order(inputs, 0))
        self.offered.append([])
        self.seen.append({})
        return True

    def wants(self, operation: Any) -> int | None:
        self.offered[-1].append(operation.address)
        return len(self.seen) - 1 if self._wants(self.passes - 1, operation.address) else None

    def on_tensor(self, ticket: int, tensor: Any) -> None:
        key = tensor.kind, tensor.address
        with self._lock:
            assert key not in self.seen[ticket], f"{key} was captured twice in one pass"
            self.seen[ticket][key] = tensor.copy(None, 0)
            if ticket == 0:
                two = tensor.copy(2, 0) if tensor.has_batch else None
                projected = tensor.project(None, 0)[0] if tensor.project and tensor.has_batch else None
                self.tensors[key] = tensor.shape, tensor.nbytes, two, projected

    def on_forward_end(self, output: Any) -> None:
        self.ended += 1

    def on_error(self, error: Exception) -> None:
        self.errors.append(error)


class Failing(Collect):
    """A tap of which one method raises."""

    def __init__(self, method: str) -> None:
        super().__init__()

        def fail(*args: Any) -> None:
            raise ZeroDivisionError(method)

        setattr(self, method, fail)


def attach(subject: Subject, model: Any, tap: Any, kinds: tuple[str, ...] | None = None) -> Handle:
    """Attach a tap to all operations of a model."""
    backend = for_model(model)
    return backend.attach(model, backend.operations(model), kinds or subject.kinds, tap)


def trained(subject: Subject, tap: Any, steps: int, kinds: tuple[str, ...] | None = None) -> Training:
    """Return a training of a new model that a tap observes until its end."""
    model = subject.new()
    handle = attach(subject, model, tap, kinds)
    try:
        return subject.train(model, steps, through=subject.through(handle))
    finally:
        handle.remove()


def without_call(address: str) -> str:
    """Return an address without the number of its call."""
    return address.partition(":")[0]


def _check_kinds(subject: Subject, choices: Iterable[tuple[str, ...]]) -> None:
    together = Collect()
    trained(subject, together, 1)
    for kinds in choices:
        some = Collect()
        trained(subject, some, 1, kinds)
        assert some.errors == []
        wanted = {key: value for key, value in together.seen[0].items() if key[0] in kinds}
        assert set(some.seen[0]) == set(wanted)
        for key, value in wanted.items():
            np.testing.assert_allclose(some.seen[0][key], value, rtol=TOLERANCE, atol=TOLERANCE)


class BackendContract:
    """The tests. A subclass has the fixture ``subject``."""

    # -- what is there ---------------------------------------------------------------------------------

    def test_model_belongs_to_backend(self, subject: Subject) -> None:
        model = subject.new()
        backend = for_model(model)
        assert backend.owns(model)
        assert not backend.owns(object())
        assert backend.inner(model, compiled=False) is model

    def test_names_of_operations(self, subject: Subject) -> None:
        """Operations known before the first call have the model's own names, the model first."""
        model = subject.new()
        backend = for_model(model)
        known = backend.operations(model)
        addresses = [operation.address for operation in known]
        assert len(set(addresses)) == len(addresses)
        assert all(operation.type for operation in known)
        if known:
            assert set(subject.calls) <= set(addresses)
            assert "" not in addresses or addresses[0] == ""
            graph = modules_graph(backend, "Net", known)
            named = {one.address for one in graph.params}
            wanted = {address for kind, address in subject.expected() if kind.startswith("parameter")}
            assert wanted <= named

    def test_calls(self, subject: Subject) -> None:
        """Every call of an operation is offered, in each pass anew, and numbered from the second on."""
        tap = Collect()
        trained(subject, tap, 2)
        assert tap.errors == []
        assert [Counter(offered) for offered in tap.offered] == [Counter(subject.calls)] * 2
        outputs = {address for kind, address in tap.seen[1] if kind == "output"}
        wanted = {
            address if call == 1 else f"{address}:{call}"
            for address, times in subject.calls.items()
            for call in range(1, times + 1)
        }
        assert outputs == wanted
        assert (tap.passes, tap.ended) == (2, 2)

    # -- values ----------------------------------------------------------------------------------------

    def test_values_equal_those_of_framework(self, subject: Subject) -> None:
        tap = Collect()
        trained(subject, tap, 1)
        assert tap.errors == []
        expected, (seen,) = subject.expected(), tap.seen
        assert {kind for kind, _ in expected} == set(subject.kinds)
        assert set(expected) <= set(seen)
        for key, value in expected.items():
            found = seen[key]
            np.testing.assert_allclose(found, value, rtol=TOLERANCE, atol=TOLERANCE, err_msg=str(key))
            shape, nbytes, two, projected = tap.tensors[key]
            assert (shape, nbytes) == (found.shape, found.nbytes)
            if two is not None:
                assert np.array_equal(two, found[:2])
            if projected is not None and found.ndim == 2 and found.shape[1] >= 1024:
                np.testing.assert_allclose(projected, project(found), rtol=1e-4, atol=1e-4)

    def test_kinds(self, subject: Subject) -> None:
        """Every second kind gives the same values as with all, and no other kind."""
        _check_kinds(subject, filter(None, (subject.kinds[::2], subject.kinds[1::2])))

    @pytest.mark.long
    def test_each_kind_alone(self, subject: Subject) -> None:
        """Each kind alone gives the same values as with all, and no other kind."""
        _check_kinds(subject, [(kind,) for kind in subject.kinds])

    def test_impossible_kinds_are_refused(self, subject: Subject) -> None:
        """A kind that cannot be captured is refused by its name before anything changes."""
        for kind in set(KINDS) - set(subject.kinds):
            model = subject.new()
            before = subject.footprint(model)
            with pytest.raises(InputError, match=rf"\b{kind}\b"):
                attach(subject, model, Collect(), ("output", kind))
            assert subject.footprint(model) == before

    # -- which and when --------------------------------------------------------------------------------

    def test_attach_to_some_operations(self, subject: Subject) -> None:
        """Only the operations that were attached to are captured."""
        model = subject.new()
        backend = for_model(model)
        chosen = [one for one in backend.operations(model) if one.address in sorted(subject.calls)[-2:]]
        if not chosen:  # they are discovered during the first call, and the tap chooses
            return
        tap = Collect()
        handle = backend.attach(model, chosen, ("output",), tap)
        subject.train(model, 1, through=subject.through(handle))
        handle.remove()
        assert tap.errors == []
        assert {without_call(address) for _, address in tap.seen[0]} == {one.address for one in chosen}
        assert set(tap.offered[0]) == {one.address for one in chosen}

    def test_wanted_operations_and_passes(self, subject: Subject) -> None:
        """The tap chooses operations in each pass, and a pass that it skips is not reported."""
        last = sorted(subject.calls)[-1]
        tap = Collect(lambda number, address: number != 1 or address == last, lambda number: number != 2)
        trained(subject, tap, 4)
        assert tap.errors == []
        assert (tap.passes, len(tap.seen), tap.ended) == (4, 3, 3)
        owned = [{without_call(address) for kind, address in seen if kind == "output"} for seen in tap.seen]
        assert owned == [set(subject.calls), {last}, set(subject.calls)]

    def test_inputs_of_pass(self, subject: Subject) -> None:
        """Rows, mode and order are those of the training."""
        orders = []
        for _ in range(2):
            model = subject.new()
            tap = Collect(backend=for_model(model), model=model)
            handle = attach(subject, model, tap)
            subject.train(model, 2, through=subject.through(handle))
            handle.remove()
            assert tap.errors == []
            assert tap.modes == [subject.mode] * 2
            assert tap.rows == [ROWS] * 2
            orders.append(tap.orders)
        assert orders[0] == orders[1]
        if subject.ordered:
            assert isinstance(orders[0][0], bytes)
            assert orders[0][0] != orders[0][1]
        else:
            assert not isinstance(orders[0][0], bytes)

    # -- the training is not affected ------------------------------------------------------------------

    @pytest.mark.parametrize("watched", ["all passes", "every second pass", "no pass"])
    def test_training_has_the_same_bits(self, subject: Subject, watched: str) -> None:
        starts = {
            "all passes": lambda number: True,
            "every second pass": lambda number: number % 2 == 1,
            "no pass": lambda number: False,
        }[watched]
        plain = subject.train(subject.new(), 5).bits()
        assert subject.train(subject.new(), 5).bits() == plain, "the training itself differs each time"
        tap = Collect(starts=starts)
        assert trained(subject, tap, 5).bits() == plain
        assert tap.errors == []
        assert tap.passes == 5

    def test_removal_restores_model(self, subject: Subject) -> None:
        model = subject.new()
        before = subject.footprint(model)
        handle = attach(subject, model, Collect())
        handle.remove()
        assert subject.footprint(model) == before
        expected = subject.new()
        subject.train(expected, 2)
        trained_before = subject.footprint(expected)
        tap = Collect()
        handle = attach(subject, model, tap)
        subject.train(model, 2, through=subject.through(handle))
        handle.remove()
        handle.remove()
        assert tap.errors == []
        assert subject.footprint(model) == trained_before

    def test_no_callback_is_left_after_removal(self, subject: Subject) -> None:
        """A callback anywhere, also in the framework's own library, would keep the tap alive."""
        model, tap = subject.new(), Collect()
        handle = attach(subject, model, tap)
        subject.train(model, 2, through=subject.through(handle))
        handle.remove()
        assert tap.errors == []
        assert tap.passes == 2
        left = weakref.ref(tap)
        del tap, handle
        gc.collect()
        assert left() is None
        subject.train(model, 1)

    def test_removal_during_training(self, subject: Subject) -> None:
        """After the removal nothing is captured, and the training continues with the same bits."""
        model, tap = subject.new(), Collect()
        handle = attach(subject, model, tap)

        def remove(step: int) -> None:
            if step == 1:
                handle.remove()

        training = subject.train(model, 4, through=subject.through(handle), after=remove)
        assert tap.errors == []
        assert tap.passes == 2
        assert training.bits() == subject.train(subject.new(), 4).bits()

    def test_two_attachments(self, subject: Subject) -> None:
        """Each captures on its own, and the first can be removed before the second."""
        model, first, second = subject.new(), Collect(), Collect()
        before = subject.footprint(model)
        one = attach(subject, model, first)
        other = attach(subject, model, second)
        wrap, wrap_again = subject.through(one), subject.through(other)

        def remove(step: int) -> None:
            if step == 0:
                one.remove()

        training = subject.train(model, 3, through=lambda step: wrap_again(wrap(step)), after=remove)
        other.remove()
        assert (first.errors, second.errors) == ([], [])
        assert (first.passes, second.passes) == (1, 3)
        assert set(first.seen[0]) == set(second.seen[0]) == set(second.seen[2])
        assert training.bits() == subject.train(subject.new(), 3).bits()
        fresh = subject.new()
        attach(subject, fresh, Collect()).remove()
        assert subject.footprint(fresh) == before

    @pytest.mark.parametrize("method", ["on_forward_start", "wants", "on_tensor", "on_forward_end"])
    def test_exceptions_of_tap_reach_on_error_only(self, subject: Subject, method: str) -> None:
        tap = Failing(method)
        training = trained(subject, tap, 2)
        assert training.bits() == subject.train(subject.new(), 2).bits()
        assert any(isinstance(error, ZeroDivisionError) for error in tap.errors)
        assert {str(error) for error in tap.errors if isinstance(error, ZeroDivisionError)} == {method}

    def test_probe_without_server(self, subject: Subject) -> None:
        plain = subject.train(subject.new(), 3).bits()
        model = subject.new()
        with socket.create_server(("127.0.0.1", 0)) as free:
            nobody = free.getsockname()
        with intus.probe(model, *nobody, kinds=subject.kinds, budget=float("inf")) as watch:
            training = subject.train(model, 3, through=subject.through(watch))
        assert training.bits() == plain
        status = watch.status()
        assert status["passes"] == 3
        assert status["troubles"] == 0
        assert status["recorded"] > 0
        apart = {one.address for one in for_model(model).operations(model) if one.apart}
        assert set(watch.operations) >= set(subject.calls) - apart

    def test_parameters_of_each_epoch(self, subject: Subject, unsent: list[Any]) -> None:
        """The last ones that are recorded of an epoch are those of a training of as many steps."""
        if "parameter" not in subject.kinds:
            return
        model, steps = subject.new(), {0: 3, 1: 5}
        with socket.create_server(("127.0.0.1", 0)) as free:
            nobody = free.getsockname()
        kinds = ("output", "parameter")
        with intus.probe(model, *nobody, kinds=kinds, budget=float("inf"), structure=False) as watch:
            watch.epoch = 0

            def after(step: int) -> None:
                if step + 1 == steps[0]:
                    watch.epoch = 1

            training = subject.train(model, steps[1], through=subject.through(watch), after=after)
        assert training.bits() == subject.train(subject.new(), steps[1]).bits()
        last = {(one.epoch, one.address): one.array for one in unsent if one.kind == "parameter"}
        for epoch, number in steps.items():
            seen = number if subject.parameters_at_end else number - 1
            wanted = subject.parameters(subject.train(subject.new(), seen).model)
            found = {address: value for (at, address), value in last.items() if at == epoch}
            assert found.keys() == wanted.keys()
            for address, value in wanted.items():
                np.testing.assert_allclose(found[address], value, rtol=TOLERANCE, atol=TOLERANCE)

    @pytest.mark.long
    def test_budget_counts_work_that_no_clock_sees(
        self, subject: Subject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Work is planted in the backend's own part of a pass, on whatever thread that runs."""
        monkeypatch.setattr("intus.monitoring.budget.FREE_S", 0.002)
        wants, worked = ModelTap.wants, dict[int, float]()

        def slow(tap: ModelTap, operation: Any) -> Any:
            if tap._tags.step not in worked:
                began = time.thread_time()
                while time.thread_time() < began + 0.005:
                    pass
                worked[tap._tags.step] = time.thread_time() - began
            return wants(tap, operation)

        monkeypatch.setattr(ModelTap, "wants", slow)
        model = subject.new()
        with socket.create_server(("127.0.0.1", 0)) as free:
            nobody = free.getsockname()
        rounds = 0
        with intus.probe(model, *nobody, budget=0.05, structure=False) as watch:
            while rounds < 1 or (len(worked) < 30 and rounds < 20):  # it must know the cost of a pass by then
                subject.train(model, 500, through=subject.through(watch))
                rounds += 1
        status = watch.status()
        assert status["passes"] == 500 * rounds
        assert len(worked) == status["passes"] - status["skipped"] < status["passes"] / 2
        assert sum(worked.values()) * 0.7 <= status["spent"] <= sum(worked.values()) * 2 + 2 * rounds

    def test_graph_of_first_call(self, subject: Subject) -> None:
        """The graph that ``probe`` sends has every operation that ran, under its address."""
        model = subject.new()
        recorder = for_model(model).graph_recorder(model)
        assert (recorder is not None) == subject.records_graph
        if recorder is None:
            return
        graphs = []

        class Recording(Collect):
            def on_forward_start(self, inputs: Any) -> bool:
                recorder.begin(model, inputs)
                return super().on_forward_start(inputs)

            def on_forward_end(self, output: Any) -> None:
                graphs.append(recorder.end(output))

        tap = Recording(starts=lambda number: number == 0)
        handle = attach(subject, model, tap, ("output",))
        training = subject.train(model, 1, through=subject.through(handle))
        handle.remove()
        assert tap.errors == []
        assert training.bits() == subject.train(subject.new(), 1).bits()
        (graph,) = graphs
        assert graph is not None
        assert len(graph) > 0
        assert set(subject.calls) <= {*(one.address for one in graph.modules), *graph.names()}

    # -- evaluation and state --------------------------------------------------------------------------

    def test_evaluation(self, subject: Subject) -> None:
        """Outputs are those of evaluation mode, and the training after it has the same bits."""
        model = subject.new()
        backend = for_model(model)
        before = subject.footprint(model)
        with backend.evaluation(model) as run:
            inputs = backend.inputs(model, subject.data())
            tap = Collect()
            handle = attach(subject, model, tap, ("output",))
            output = run(inputs)
            handle.remove()
        array = np.asarray(output.asnumpy() if hasattr(output, "asnumpy") else output)
        np.testing.assert_allclose(array, subject.evaluated(), rtol=TOLERANCE, atol=TOLERANCE)
        assert tap.errors == []
        assert len(tap.seen) == 1
        assert {without_call(address) for _, address in tap.seen[0]} <= set(subject.calls)
        assert any(value.shape == array.shape and (value == array).all() for value in tap.seen[0].values())
        assert subject.footprint(model) == before
        assert subject.train(model, 2).bits() == subject.train(subject.new(), 2).bits()

    def test_version_and_state(self, subject: Subject) -> None:
        """Both change with the parameters, and not with an attachment."""
        model, same = subject.new(), subject.new()
        backend = for_model(model)
        version, state = backend.version(model), backend.state(model)
        handle = attach(subject, model, Collect())
        assert backend.version(model) == version
        assert backend.state(model) == state
        handle.remove()
        assert backend.state(same) == state
        training = subject.train(model, 1)
        assert backend.version(training.model) != version
        assert state is None or backend.state(training.model) != state


class TraceContract:
    """Facts that a trace tells of modules that return several tensors, what they were given, or a dict.

    A test module derives a class from it and gives it models by the fixture ``net``: each has modules
    ``enc``, ``same`` and ``pair``, which ``Returning`` describes.
    """

    def test_module_returns_its_tensors_in_its_order(self, net: Any) -> None:
        """The first tensor is the one returned first, whichever was computed first."""
        t, expected = intus.trace(net, Returning.given(net)), Returning.expected()
        returned = [t.graph.call_outputs[call] for call in t.graph.module_names["enc"]]
        assert [[t.graph.metas[t.graph.ops.meta[row]].shape for row in rows] for rows in returned] == [
            [(4, 3), (4, 2)]
        ]
        np.testing.assert_array_equal(np.asarray(t["enc"].value), expected["enc"])
        np.testing.assert_array_equal(np.asarray(t.value("enc[1@1]")), expected["enc"][:, 1])

    def test_module_that_returns_its_input_ran(self, net: Any) -> None:
        """A dropout that is off, or a module that returns its input and another tensor, has an output."""
        t, expected = intus.trace(net, Returning.given(net)), Returning.expected()
        for address in ("same", "pair"):
            np.testing.assert_array_equal(np.asarray(t[address].value), expected["enc"], err_msg=address)
            assert t.modules[address].num_calls == 1

    def test_outputs_have_the_names_and_order_of_the_model(self, net: Any) -> None:
        """Outputs have values; those of a dict have its keys, in its order."""
        t, expected = intus.trace(net, Returning.given(net)), Returning.expected()
        for output, name in zip(t.outputs, ("late", "early"), strict=True):
            np.testing.assert_allclose(np.asarray(output.value), expected[name], rtol=1e-6)
        if getattr(net, "returns_dict", True):
            np.testing.assert_allclose(np.asarray(t["late"].value), expected["late"], rtol=1e-6)
            np.testing.assert_allclose(np.asarray(t["early"].value), expected["early"], rtol=1e-6)


class Returning:
    """The model of ``TraceContract``, and its judge on numpy: the modules of a framework call its methods.

    They run on the tensors of every framework::

        class Enc(nn.Module):
            forward = Returning.enc

    Where a framework's models return no dict, the model has a false ``returns_dict`` and returns a tuple.
    """

    @staticmethod
    def given(net: Any) -> Any:
        """Return the input."""
        return getattr(net, "as_input", np.asarray)(np.arange(24, dtype=np.float32).reshape(4, 6))

    @classmethod
    def expected(cls) -> dict[str, np.ndarray]:
        """Return the outputs, and the first tensor that ``enc`` returns."""
        x = cls.given(None)
        return {**cls().net(x), "enc": cls().enc(x)[0]}

    def enc(self, x: Any) -> Any:
        """Compute the second tensor before the first."""
        early = x[:, :2] * 2
        return x[:, :3] + 1, early

    def same(self, x: Any) -> Any:
        """Return what was given."""
        return x

    def pair(self, x: Any) -> Any:
        """Return what was given, and another tensor."""
        return x, x * 3

    def net(self, x: Any) -> dict[str, Any]:
        """Call the three modules."""
        late, early = self.enc(x)
        given, more = self.pair(self.same(late))
        return {"late": given + 1, "early": early + more[:, :2]}
