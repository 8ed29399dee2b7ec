"""Every row of docs/names.md, on a model that has everything, against values computed without intus."""

import functools
import inspect
import math
import re
import time
from pathlib import Path

import networkx
import pytest
import torch
from torch import nn

import intus
from intus.tracing.capture.argument_names import by_name

PAGE = Path(__file__).parents[3] / "docs" / "names.md"
ROW = re.compile(r"^\| `(?P<paper>\w+)` \| `(?P<ours>.+?)` \|", re.MULTILINE)
ROWS = {match["paper"]: match["ours"] for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))}
MODEL = {paper: ours for paper, ours in ROWS.items() if "op." not in ours}
OP = {paper: ours for paper, ours in ROWS.items() if "op." in ours}


class Everything(nn.Module):
    """Recurrence, buffers, a factory op, an in-place write, several outputs, a condition, an LSTM."""

    def __init__(self):
        super().__init__()
        self.mix, self.block = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.lstm, self.head = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 2)
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.register_buffer("count", torch.zeros(1))
        self.head.bias.requires_grad_(False)

    def forward(self, x):
        x = x + torch.rand(x.shape)
        for _ in range(3):
            x = torch.tanh(self.mix(x))
        self.count += 1
        x = (self.block(x) * self.scale).sub(self.count)
        if (x.sum() > -1e9).all():
            x = x.clamp_(min=-1)
        a, b = x.chunk(2, dim=1)
        out, _ = self.lstm(x[:, None])
        return {"logits": self.head(out[:, 0]), "parts": (a, b)}


ORDER = [
    "rand_1_1", "add_1_2", *(f"{name}:{n}" for n in (1, 2, 3) for name in ("linear_1_3", "tanh_1_4")),
    "add_2_5", "linear_2_6", "relu_1_7", "mul_1_8", "sub_1_9", "sum_1_10", "gt_1_11", "all_1_12",
    "clamp_1_13", "chunk_1_14", "chunk_2_15", "getitem_1_16", "zeros_1_17", "zeros_2_18",
    "lstm_1_19", "lstm_2_20", "lstm_3_21", "getitem_2_22", "linear_3_23",
]  # fmt: skip
OUTPUTS, BUFFERS = ["output_1", "output_2", "output_3"], ["buffer_1", "buffer_2"]
LABELS = ["input_1", *ORDER[:8], "buffer_1", *ORDER[8:11], "buffer_2", *ORDER[11:], *OUTPUTS]
ROOTS = ["input_1", "rand_1_1", "buffer_1", "buffer_2", "zeros_1_17", "zeros_2_18"]
CREATED = ["rand_1_1", "zeros_1_17", "zeros_2_18"]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Everything()


@pytest.fixture(scope="module")
def t(model):
    return intus.trace(model, torch.ones(3, 4), seed=5, grads=True)


def labels(ops):
    return [op.label for op in ops]


def test_labels_in_execution_order(t):
    assert (labels(t.ops), t.graph.labels) == (ORDER, LABELS)


def test_names_page_lists_every_field_of_the_paper():
    text = PAGE.read_text(encoding="utf-8")
    assert len(ROWS) == len(re.findall(r"^\| `", text, re.MULTILINE)) == len(MODEL_TRUTH) + len(OP_TRUTH)
    assert (len(MODEL), len(OP)) == (31, 60)  # Supplementary Table 1, left and right
    assert (list(MODEL), list(OP)) == (list(MODEL_TRUTH), list(OP_TRUTH))


NUMBERS = 4 * 4 + 4 + 4 * 4 + 4 + 2 * 16 * 4 + 2 * 16 + 2 * 4 + 2
CALLS = {"": 1, "mix": 3, "block": 1, "block.0": 1, "block.1": 1, "lstm": 1, "head": 1}
TENSORS = 1 + 2 + len(ORDER)
LSTM = ["lstm_1_19", "lstm_2_20", "lstm_3_21"]  # what one call returned, three tensors

MODEL_TRUTH = {
    "model_name": lambda t, m: "Everything",
    "random_seed_used": lambda t, m: 5,
    "model_is_recurrent": lambda t, m: True,
    "model_max_recurrent_loops": lambda t, m: 3,
    "model_is_branching": lambda t, m: True,
    "model_has_conditional_branching": lambda t, m: True,
    "layer_list": lambda t, m: list(dict.fromkeys(label.partition(":")[0] for label in ORDER)),
    "input_layers": lambda t, m: ["input_1"],
    "output_layers": lambda t, m: ["output_1", "output_2", "output_3"],
    "buffer_layers": lambda t, m: ["buffer_1", "buffer_2"],
    "internally_initialized_layers": lambda t, m: CREATED,
    "internally_terminated_bool_layers": lambda t, m: ["all_1_12"],
    "layers_computed_with_params": lambda t, m: ["linear_1_3", "linear_2_6", *LSTM, "linear_3_23"],
    "num_tensors_total": lambda t, m: TENSORS,
    "tensor_fsize_total": lambda t, m: sum(op.value.numel() * op.value.element_size() for op in every(t)),
    "tensor_fsize_saved": lambda t, m: sum(op.value.numel() * op.value.element_size() for op in every(t)),
    "num_tensors_saved": lambda t, m: TENSORS,
    "total_param_tensors": lambda t, m: len(list(m.parameters())),
    "total_param_layers": lambda t, m: 6,
    "total_params": lambda t, m: NUMBERS,
    "total_params_fsize": lambda t, m: 4 * NUMBERS,
    "module_addresses": lambda t, m: [name for name, _ in m.named_modules()],
    "module_types": lambda t, m: {name: type(part).__name__ for name, part in m.named_modules()},
    "module_num_passes": lambda t, m: CALLS,
    "module_pass_children": lambda t, m: {
        **{address: [] for address in ("mix:1", "mix:2", "mix:3", "block.0", "block.1", "lstm", "head")},
        "": ["mix:1", "mix:2", "mix:3", "block", "lstm", "head"],
        "block": ["block.0", "block.1"],
    },
    "top_level_module_passes": lambda t, m: ["mix:1", "mix:2", "mix:3", "block", "lstm", "head"],
    "pass_start_time": lambda t, m: pytest.approx(time.time(), abs=600),
    "pass_end_time": lambda t, m: pytest.approx(t.started + t.seconds),
    "elapsed_time_total": lambda t, m: pytest.approx(t.ended - t.started, abs=1e-3),
    "elapsed_time_function_calls": lambda t, m: pytest.approx(sum(op.seconds for op in t)),
    "elapsed_time_torchlens_logging": lambda t, m: pytest.approx(t.seconds - t.op_seconds),
}


def every(t):
    return [*t.inputs, *t.buffers, *t.ops]


def plain(value):
    """Replace ops, modules and calls by their names."""
    if isinstance(value, intus.Op):
        return value.label
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return getattr(value, "address", value)


@pytest.mark.parametrize("paper", list(MODEL))
def test_field_of_trace(paper, t, model):
    assert plain(eval(MODEL[paper], {"t": t})) == MODEL_TRUTH[paper](t, model)


# -- one operation --------------------------------------------------------------------------------------

MODULE = {
    **{f"linear_1_3:{n}": f"mix:{n}" for n in (1, 2, 3)},
    "linear_2_6": "block.0",
    "relu_1_7": "block.1",
    "linear_3_23": "head",
    **dict.fromkeys([*LSTM, "zeros_1_17", "zeros_2_18"], "lstm"),
}
NESTED = {
    label: [
        "",
        *(["block"] if label in ("linear_2_6", "relu_1_7") else []),
        *([MODULE[label]] if label in MODULE else []),
    ]
    for label in [*ORDER, *BUFFERS]
}
HELD = {
    **{f"linear_1_3:{n}": [(4, 4), (4,)] for n in (1, 2, 3)},
    "linear_2_6": [(4, 4), (4,)],
    "linear_3_23": [(2, 4), (2,)],
    **{label: [(16, 4), (16, 4), (16,), (16,)] for label in LSTM},
}
ENTERED = {
    "add_1_2": ["mix:1"],
    "tanh_1_4:1": ["mix:2"],
    "tanh_1_4:2": ["mix:3"],
    "tanh_1_4:3": ["block", "block.0"],
    "linear_2_6": ["block.1"],
    "getitem_1_16": ["lstm"],
    "getitem_2_22": ["head"],
}
EXITED = {
    **{label: [address] for label, address in MODULE.items() if not label.startswith("zeros")},
    "relu_1_7": ["block.1", "block"],
    "chunk_1_14": [""],
    "chunk_2_15": [""],
    "linear_3_23": ["head", ""],
}
NAMES = {"buffer_1": "count", "buffer_2": "scale"}
INDEX = {"chunk_1_14": 0, "chunk_2_15": 1} | dict(zip(LSTM, range(3), strict=True))
FUNCTIONS = {
    "linear": nn.functional.linear,
    "tanh": torch.tanh,
    "relu": nn.functional.relu,
    "rand": torch.rand,
    "zeros": torch.zeros,
    "lstm": torch.lstm,
    "add_1_2": torch.Tensor.add,
    "add_2_5": torch.Tensor.add_,
    **{name: getattr(torch.Tensor, name) for name in ("mul", "sub", "sum", "gt", "all", "chunk")},
    "clamp": torch.Tensor.clamp_,
    "getitem": torch.Tensor.__getitem__,
}
ALL, SEEDED = slice(None), torch.Generator().manual_seed(5).get_state()
FLAT = [f"lstm.{name}_l0" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
FLAGS = (True, 1, 0.0, True, False, True)
ARGS = {
    "rand_1_1": ((3, 4),),
    "add_1_2": ("input_1", "rand_1_1"),
    "linear_1_3:1": ("add_1_2", "mix.weight", "mix.bias"),
    **{f"linear_1_3:{n}": (f"tanh_1_4:{n - 1}", "mix.weight", "mix.bias") for n in (2, 3)},
    **{f"tanh_1_4:{n}": (f"linear_1_3:{n}",) for n in (1, 2, 3)},
    "add_2_5": ("buffer_1", 1),
    "linear_2_6": ("tanh_1_4:3", "block.0.weight", "block.0.bias"),
    "relu_1_7": ("linear_2_6",),
    "mul_1_8": ("relu_1_7", "buffer_2"),
    "sub_1_9": ("mul_1_8", "add_2_5"),
    "sum_1_10": ("sub_1_9",),
    "gt_1_11": ("sum_1_10", -1e9),
    "all_1_12": ("gt_1_11",),
    "clamp_1_13": ("sub_1_9",),
    "chunk_1_14": ("clamp_1_13", 2),
    "chunk_2_15": ("clamp_1_13", 2),
    "getitem_1_16": ("clamp_1_13", (ALL, None)),
    "zeros_1_17": (1, 3, 4),
    "zeros_2_18": (1, 3, 4),
    "getitem_2_22": ("lstm_1_19", (ALL, 0)),
    **dict.fromkeys(LSTM, ("getitem_1_16", ("zeros_1_17", "zeros_2_18"), FLAT, *FLAGS)),
    "linear_3_23": ("getitem_2_22", "head.weight", "head.bias"),
}
ZEROS = {"dtype": torch.float32, "device": torch.device("cpu")}
KWARGS = {
    "relu_1_7": {"inplace": False},
    "clamp_1_13": {"min": -1},
    "zeros_1_17": ZEROS,
    "zeros_2_18": ZEROS,
    **{key: {"dim": 1} for key in ["chunk_1_14", "chunk_2_15"]},
}
PLAIN = {
    "rand_1_1": ((3, 4),),
    "add_2_5": (1,),
    "gt_1_11": (-1e9,),
    "chunk_1_14": (2,),
    "chunk_2_15": (2,),
    "getitem_1_16": ((ALL, None),),
    "zeros_1_17": (1, 3, 4),
    "zeros_2_18": (1, 3, 4),
    "getitem_2_22": ((ALL, 0),),
    **dict.fromkeys(LSTM, FLAGS),
}


def layer(label):
    return label.partition(":")[0]


def keys(label):
    """Return the keys that find the label first."""
    short, numbered = "_".join(layer(label).split("_")[:2]), label.partition(":")[2]
    names = [layer(label), short] * (numbered in ("", "1"))
    names += [f"{name}:{numbered or 1}" for name in (layer(label), short)]
    for address in EXITED.get(label, []):
        if label in ("chunk_1_14", "chunk_2_15", *LSTM[1:]):
            continue  # not the module's first output
        plain, _, call = address.partition(":")
        names += [plain] * (call in ("", "1")) + [f"{plain}:{call or 1}"]
    names += [NAMES[label]] if label in NAMES else []
    return {*names, *([ORDER.index(label), ORDER.index(label) - len(ORDER)] if label in ORDER else [])}


def path_length(g, label, ends, choose, *, back=False):
    """Return the length of the chosen path among all simple paths."""
    found = [0] if label in ends else []
    for end in ends:
        found += [len(p) - 1 for p in networkx.all_simple_paths(g, *((label, end) if back else (end, label)))]
    return choose(found) if found else None


def ordered(names):
    return sorted(set(names), key=LABELS.index)


def relatives(label, one, other):
    return ordered({end for near in one(label) for end in other(near)} - {label})


def param_shapes(op):
    return HELD.get(op.label, [])


def ancestors(g, op, among):
    return [label for label in among if label in networkx.ancestors(g, op.label)]


def function(op):
    return FUNCTIONS.get(op.label, FUNCTIONS.get(op.label.split("_")[0]))


def ran_before(label):
    return [other for other in LABELS[: LABELS.index(label) + 1] if other in ORDER]


OP_TRUTH = {
    "layer_label": lambda op, g: layer(op.label),
    "layer_label_w_pass": lambda op, g: op.label if ":" in op.label else f"{op.label}:1",
    "operation_num": lambda op, g: len(ran_before(op.label)),
    "layer_type": lambda op, g: op.label.split("_")[0],
    "layer_type_num": lambda op, g: int(layer(op.label).split("_")[1]),
    "layer_total_num": lambda op, g: int([*layer(op.label).split("_"), 0][2]),
    "pass_num": lambda op, g: int(op.label.partition(":")[2] or 1),
    "layer_passes_total": lambda op, g: 3 if layer(op.label) in ("linear_1_3", "tanh_1_4") else 1,
    "lookup_keys": lambda op, g: keys(op.label),
    "tensor_contents": lambda op, g: Same(g.seen[op.label]),
    "tensor_shape": lambda op, g: tuple(g.seen[op.label].shape),
    "tensor_dtype": lambda op, g: str(g.seen[op.label].dtype).removeprefix("torch."),
    "tensor_fsize": lambda op, g: g.seen[op.label].numel() * g.seen[op.label].element_size(),
    "creation_args": lambda op, g: ARGS.get(op.label, ()),
    "creation_kwargs": lambda op, g: KWARGS.get(op.label, {}),
    "func_applied": lambda op, g: function(op),
    "func_applied_name": lambda op, g: getattr(function(op), "__name__", op.kind),
    "func_time_elapsed": lambda op, g: Between(0, op._trace.seconds),
    "func_rng_states": lambda op, g: Same(SEEDED) if op.label == "rand_1_1" else None,
    "func_position_args_non_tensor": lambda op, g: PLAIN.get(op.label, ()),
    "func_keyword_args_non_tensor": lambda op, g: KWARGS.get(op.label, {}),
    "function_is_inplace": lambda op, g: op.label in ("add_2_5", "clamp_1_13"),
    "gradfunc_name": lambda op, g: g.nodes_of_autograd.get(op.label),
    "is_part_of_iterable_output": lambda op, g: op.label in INDEX,
    "iterable_output_index": lambda op, g: INDEX.get(op.label),
    "computed_with_params": lambda op, g: bool(param_shapes(op)),
    "num_param_tensors": lambda op, g: len(param_shapes(op)),
    "parent_param_shapes": lambda op, g: param_shapes(op),
    "num_params_total": lambda op, g: sum(map(math.prod, param_shapes(op))),
    "parent_params_fsize": lambda op, g: 4 * sum(map(math.prod, param_shapes(op))),
    "same_layer_operations": lambda op, g: [other for other in LABELS if layer(other) == layer(op.label)],
    "parent_layers": lambda op, g: parents(op),
    "orig_ancestors": lambda op, g: ordered(ancestors(g, op, ROOTS)),
    "child_layers": lambda op, g: ordered(other for other in LABELS if op.label in parents(op._trace[other])),
    "sibling_layers": lambda op, g: relatives(op.label, g.predecessors, g.successors),
    "spouse_layers": lambda op, g: relatives(op.label, g.successors, g.predecessors),
    "is_input_layer": lambda op, g: op.label == "input_1",
    "has_input_ancestor": lambda op, g: networkx.has_path(g, "input_1", op.label),
    "min_distance_from_input": lambda op, g: path_length(g, op.label, ["input_1"], min),
    "max_distance_from_input": lambda op, g: path_length(g, op.label, ["input_1"], max),
    "is_output_layer": lambda op, g: op.label in OUTPUTS,
    "is_output_ancestor": lambda op, g: any(networkx.has_path(g, op.label, out) for out in OUTPUTS),
    "output_descendents": lambda op, g: [o for o in OUTPUTS if o in networkx.descendants(g, op.label)],
    "min_distance_from_output": lambda op, g: path_length(g, op.label, OUTPUTS, min, back=True),
    "max_distance_from_output": lambda op, g: path_length(g, op.label, OUTPUTS, max, back=True),
    "is_buffer_layer": lambda op, g: op.label in BUFFERS,
    "buffer_address": lambda op, g: NAMES.get(op.label),
    "initialized_inside_model": lambda op, g: op.label in CREATED,
    "internally_initialized_parents": lambda op, g: [name for name in CREATED if name in parents(op)],
    "internally_initialized_ancestors": lambda op, g: ancestors(g, op, CREATED),
    "terminated_inside_model": lambda op, g: op.label in ("all_1_12", *LSTM[1:]),
    "is_terminal_bool_layer": lambda op, g: op.label == "all_1_12",
    "in_cond_branch": lambda op, g: op.label in ("sum_1_10", "gt_1_11", "all_1_12"),
    "is_computed_inside_submodule": lambda op, g: op.label in MODULE,
    "containing_module_origin": lambda op, g: NESTED.get(op.label, [None])[-1],
    "containing_module_origin_nested": lambda op, g: NESTED.get(op.label, []),
    "modules_entered": lambda op, g: ENTERED.get(op.label, []),
    "is_submodule_output": lambda op, g: any(EXITED.get(op.label, [])),
    "modules_exited": lambda op, g: EXITED.get(op.label, []),
    "is_bottom_level_submodule_output": lambda op, g: any(EXITED.get(op.label, [])) and op.label not in LSTM,
}


def parents(op):
    """Return the parents by the call's arguments, which validate checks; of an output by the model's code."""
    if op.label in OUTPUTS:
        return [["linear_3_23", "chunk_1_14", "chunk_2_15"][OUTPUTS.index(op.label)]]
    given = str((ARGS.get(op.label), KWARGS.get(op.label)))
    return [label for label in re.findall(r"'(.+?)'", given) if label in LABELS]


class Same:
    """Equal to a tensor with the same elements."""

    def __init__(self, expected):
        self.expected = expected

    def __eq__(self, other):
        return torch.equal(self.expected, other)


class Between:
    """Equal to a number within bounds."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    def __eq__(self, other):
        return self.low <= other < self.high


class RecordingMode(torch.overrides.TorchFunctionMode):
    """Records what every function of torch returns without intus, as copies."""

    def __init__(self):
        self.seen, self.nodes = [], []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") != "__get__":
            parts = out if isinstance(out, tuple) else (out,)
            made = [t for t in parts if isinstance(t, torch.Tensor)]
            self.seen += [t.detach().clone() for t in made]
            self.nodes += [t.grad_fn and t.grad_fn.name() for t in made]
        return out


@pytest.fixture(scope="module")
def family(t, model):
    """Return the networkx graph, with what was recorded without intus."""
    g = networkx.DiGraph(t.to_networkx())
    before = {"input_1": torch.ones(3, 4), "buffer_1": model.count.clone(), "buffer_2": model.scale.clone()}
    with torch.random.fork_rng(), RecordingMode() as mode:
        torch.manual_seed(5)
        out = model(before["input_1"])
    model.count.copy_(before["buffer_1"])
    outputs = dict(zip(OUTPUTS, [out["logits"], *out["parts"]], strict=True))
    g.nodes_of_autograd = dict(zip(ORDER, mode.nodes, strict=True))
    g.nodes_of_autograd |= {name: t.grad_fn.name() for name, t in outputs.items()}
    g.seen = {**before, **dict(zip(ORDER, mode.seen, strict=True)), **outputs}
    return g


@pytest.mark.parametrize("paper", list(OP))
def test_field_of_op(paper, t, family):
    ops = [t[label] for label in LABELS]
    found = {op.label: plain(eval(OP[paper], {"op": op})) for op in ops}
    if paper == "lookup_keys":
        assert all(t[key].label == label for label, names in found.items() for key in names)
        found = {label: set(names) for label, names in found.items()}
    assert found == {op.label: OP_TRUTH[paper](op, family) for op in ops}


def slow(x):
    """Add 1 in a known time; torch function modes see the call."""
    if torch.overrides.has_torch_function_unary(x):
        return torch.overrides.handle_torch_function(slow, (x,), x)
    time.sleep(0.03)
    return x + 1


def test_op_seconds():
    began = time.time()
    t = intus.trace(lambda x: slow(slow(x)) * 2, torch.ones(2), save="none")
    assert 0.03 <= t["slow_1:1"].seconds < 0.2
    assert 0.06 <= t.op_seconds <= t.seconds
    assert t.overhead_seconds == pytest.approx(t.seconds - t.op_seconds)
    assert began <= t.started <= t.ended <= time.time()


def test_loaded_trace_has_equal_fields(t, tmp_path):
    t.save(tmp_path / "everything.trace")
    again = intus.load(tmp_path / "everything.trace")
    kept = ("creation_args", "creation_kwargs", "func_applied", "func_applied_name", "tensor_contents")
    kept += (
        "func_rng_states",
        "func_position_args_non_tensor",
        "func_keyword_args_non_tensor",
    )  # functions are not saved
    for paper, ours in MODEL.items():
        assert plain(eval(ours, {"t": again})) == plain(eval(ours, {"t": t})), paper
    for paper, ours in OP.items():
        if paper not in kept:
            for label in LABELS:
                assert plain(eval(ours, {"op": again[label]})) == plain(eval(ours, {"op": t[label]})), paper


def test_non_tensor_args_without_saved_calls():
    op = intus.trace(nn.Conv2d(1, 1, 3, stride=2), torch.ones(1, 1, 9, 9), save="none")["conv2d_1"]
    assert (op.non_tensor_args, op.plain_args) == ("(2, 2), (0, 0), (1, 1), 1", ())


def decorated(function):
    @functools.wraps(function)
    def around(*given, **more):
        return function(*given, **more)

    return around


class Method:
    def plain(self, x, y=2, /, z=3):
        return x

    open = decorated(plain)


@pytest.mark.parametrize("given", [(1,), (1, 2), (1, 2, 3)])
@pytest.mark.parametrize(
    "function",
    [lambda x, y=1, *rest, last=2: x, decorated(lambda a, b=0, c=0: a), Method().plain, Method().open],
)
def test_argument_names_equal_inspect(function, given):
    assert by_name(function, given, {}) == inspect.signature(function).bind(*given).arguments
