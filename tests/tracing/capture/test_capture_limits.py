"""Tests of the rows of docs/limits.md: each has the stated outcome, and global state is restored."""

import asyncio
import copy
import inspect
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from limits_table import CASES, numbers, small
from torch import nn

import intus
from intus.core.analysis import walks
from intus.core.errors import CaptureError
from intus.core.graph import INPUT, OUTPUT

TABLE = Path(__file__).parents[3] / "docs" / "limits.md"


def table():
    """Return the outcome of each case."""
    section = TABLE.read_text(encoding="utf-8").split("\n## Cases\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines]
    return {name: what for name, what, _ in cells[1:]}


def test_every_row_of_the_table_has_a_case():
    assert list(table()) == list(CASES)


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.filterwarnings("ignore")  # many of the cases use what torch has deprecated
def test_outcome_of_each_row(name):
    case = CASES[name]
    torch.manual_seed(0)
    made = case.build()
    model, options = made if isinstance(made, tuple) else (made, {})
    given = case.given()
    call, limit = nn.Module.__call__.__code__, sys.getrecursionlimit()
    try:
        trace = intus.trace(model, given, **options)
    except CaptureError:
        assert table()[name] == "refused"
        return
    finally:
        assert nn.Module.__call__.__code__ is call
        assert sys.getrecursionlimit() == limit
        assert torch._C._len_torch_function_stack() == 0
        assert (
            torch._dynamo.eval_frame._stance.stance == "default" if "torch._dynamo" in sys.modules else True
        )
    assert what_happened(trace, case.opaque) == table()[name]
    str(trace), trace.to_pandas(), trace.show()
    if case.same:
        for op, expected in zip(trace.outputs, plainly(model, given), strict=True):
            assert torch.equal(torch.as_tensor(op.value), expected)


def what_happened(trace, opaque):
    """Return ``recorded``, ``one operation``, or ``constant`` if no path leads from input to output."""
    graph = trace.graph
    above = set(walks.ancestors(graph, graph.rows_of(OUTPUT)))
    if trace.inputs and not above & set(graph.rows_of(INPUT)):
        return "constant"
    return "one operation" if opaque in {op.type for op in trace} else "recorded"


def plainly(model, given):
    out = model(*given)
    if inspect.isgenerator(out):
        return list(out)
    return [asyncio.run(out) if inspect.iscoroutine(out) else out]


@pytest.mark.long
def test_first_torch_cond_of_a_process():
    """The call imports torch's compiler, whose stance is then set at once so that all runs eagerly."""
    script = """
import sys, intus, torch
finders = list(sys.meta_path)
forward = lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) + 1
trace = intus.trace(forward, torch.ones(2))
assert "torch._dynamo" in sys.modules and sys.meta_path == finders
assert torch.equal(trace["output_1"].value, forward(torch.ones(2)))
dynamo = sys.modules["torch._dynamo"]
assert dynamo.eval_frame._stance.stance == "default"
assert type(dynamo.__spec__.loader) is type(dynamo.__loader__) is type(torch.__loader__)
print([op.type for op in trace])
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    assert done.stdout == "['sum', 'gt', 'cond', 'add']\n", done.stderr


@pytest.mark.long
def test_compiler_is_not_imported():
    script = (
        "import sys, intus, torch; f = list(sys.meta_path); intus.trace(torch.nn.ReLU(), torch.ones(2)); "
    )
    script += "assert sys.meta_path == f and 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_compiled_module_compiles_after_a_trace():
    compiled = []

    def backend(module, _inputs):
        compiled.append(module)
        return module.forward

    model = torch.compile(small(), backend=backend)
    t = intus.trace(model, torch.ones(1, 3))
    assert (t.name, t["input"].label) == (
        type(small()).__name__,
        "input_1",
    )  # as the module that was compiled
    intus.trace(model, numbers())
    assert not compiled
    model(numbers())
    assert len(compiled) == 1


def test_branch_on_meta_tensor_without_meta_value_raises():
    with pytest.raises(RuntimeError, match="meta"):
        intus.trace(lambda x: x * 2 if x.sum() > 0 else x, numbers().to("meta"))


def test_saved_value_before_numpy_write():
    def forward(x):
        y = x * 2
        y.numpy()[:] = 0
        return y + 1

    trace = intus.trace(forward, numbers())
    assert torch.equal(trace["mul_1"].value, numbers() * 2)


def test_recursion_limit_set_by_the_model_is_kept():
    before = sys.getrecursionlimit()

    def forward(x):
        sys.setrecursionlimit(before + 17)
        return x + 1

    try:
        intus.trace(forward, numbers())
        assert sys.getrecursionlimit() == before + 17
    finally:
        sys.setrecursionlimit(before)


def test_endless_recursion_raises():
    def forward(x):
        return forward(x + 1)

    with pytest.raises(RecursionError) as caught:
        intus.trace(forward, numbers())
    assert "sys.setrecursionlimit" in caught.value.__notes__[0]


class Nested(nn.Module):
    """Calls a module that contains another one, ``depth`` times."""

    def __init__(self, depth):
        super().__init__()
        self.inner = Nested(depth - 1) if depth else nn.ReLU()

    def forward(self, x):
        return self.inner(x)


@pytest.mark.long
def test_trace_needs_few_frames_more_than_the_model():
    def fits(run, depth):
        try:
            run(models[depth])
        except RecursionError:
            return False
        return True

    def run():
        deepest = max(depth for depth in models if fits(lambda model: model(numbers()), depth))
        found.append(deepest)
        found.extend(fits(lambda model: intus.trace(model, numbers()), deepest - less) for less in (200, 4))

    models, found = {depth: Nested(depth) for depth in range(20, 320)}, []
    thread = threading.Thread(target=run)  # its stack is empty, unlike that of the test
    thread.start()
    thread.join()
    assert 210 < found[0] < 319
    assert found[1:] == [True, True]


@pytest.mark.long
def test_trace_ends_while_another_thread_is_deep():
    """Lowering the recursion limit under a thread that is deeper makes Python abort the process."""
    script = """
import sys, threading, torch, intus
inside, deep, done = threading.Event(), threading.Event(), threading.Event()
limits = []

def forward(x):
    inside.set(); deep.wait(); limits.append(sys.getrecursionlimit())
    return x + 1

def recurse(n):
    if n == 0:
        deep.set(); done.wait()
        return 0
    return 1 + recurse(n - 1)

def other():
    inside.wait()
    try:
        recurse(1500)
    except RecursionError:
        deep.set()
        print("RecursionError, as without a trace")

thread = threading.Thread(target=other)
thread.start()
before = sys.getrecursionlimit()
intus.trace(forward, torch.ones(1))
done.set()
thread.join()
assert limits == [before] == [sys.getrecursionlimit()]
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["RecursionError, as without a trace", "alive"]


def test_concurrent_traces_share_global_patches():
    limit, call, found = sys.getrecursionlimit(), nn.Module.__call__.__code__, []
    barrier = threading.Barrier(4)

    def forward(x):
        barrier.wait()
        return x + 1

    def run():
        found.append(intus.trace(forward, numbers()))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[op.label for op in trace] for trace in found] == [["add_1_1"]] * 4
    assert (sys.getrecursionlimit(), nn.Module.__call__.__code__) == (limit, call)


def test_keyboard_interrupt_restores_everything():
    def forward(x):
        x = x + 1
        raise KeyboardInterrupt

    limit, call = sys.getrecursionlimit(), nn.Module.__call__.__code__
    with pytest.raises(KeyboardInterrupt) as caught:
        intus.trace(forward, numbers())
    assert [op.label for op in caught.value.intus_trace] == ["add_1_1"]
    assert (sys.getrecursionlimit(), nn.Module.__call__.__code__) == (limit, call)
    assert torch._C._len_torch_function_stack() == 0


def test_inference_tensor_with_reused_id():
    ones = np.ones((2, 3), dtype=np.float32)
    returned = []  # which tensors reuse an id differs from call to call

    def forward(x):
        freed = {id(x * 2) for _ in range(50)}
        with torch.inference_mode():
            unrecorded = [torch.from_numpy(ones) for _ in range(50)]
            returned.append(sum((t for t in unrecorded if id(t) in freed), x + 0))
        return returned[-1]

    assert torch.equal(intus.trace(forward, numbers()).outputs[0].value, returned[-1])


def test_forward_with_keywords_named_module_and_args():
    class Net(nn.Module):
        def forward(self, x, module, args):
            return x * module + args

    assert intus.trace(Net(), numbers(), module=2, args=1).outputs[0].value.tolist() == (
        (numbers() * 2 + 1).tolist()
    )


@pytest.mark.long
def test_numpy_random_first_used_in_the_pass():
    script = "import torch, intus; print(len(intus.trace(lambda x: x + float(NUMPY), torch.ones(2))))"
    script = script.replace("NUMPY", "__import__('numpy').random.rand()")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def test_module_calls_of_other_threads_run_torchs_own_code():
    """Count the Python functions that a module call of another thread runs while a trace is under way."""
    traced, finish, model, x = threading.Event(), threading.Event(), nn.Identity(), torch.ones(1)

    def forward(x):
        traced.set()
        assert finish.wait(60)
        return x + 1

    def functions_called():
        names = []
        sys.setprofile(lambda frame, event, arg: event == "call" and names.append(frame.f_code.co_name))
        try:
            model(x)
        finally:
            sys.setprofile(None)
        return names

    plain = functions_called()
    thread = threading.Thread(target=intus.trace, args=(forward, x))
    thread.start()
    try:
        assert traced.wait(60)
        beside = functions_called()
    finally:
        finish.set()
        thread.join()
    assert len(beside) == len(plain)
    assert functions_called() == plain


def test_deepcopy_has_one_parent():
    """The second copy is not made from the first, which ``copy.deepcopy`` remembers in its memo."""

    def forward(x):
        first, second = copy.deepcopy([x * 2, x * 3])
        return first - second

    trace = intus.trace(forward, numbers())
    copies = trace.find(type="deepcopy")
    assert [[parent.label for parent in op.parents] for op in copies] == [["mul_1_1"], ["mul_2_2"]]
    for report in (trace.validate(), intus.validate(forward, numbers())):
        assert report, str(report)
    after = trace.rerun({"input_1": numbers() * 2})
    assert torch.equal(after["output_1"].value, forward(numbers() * 2))
