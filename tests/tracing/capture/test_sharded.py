"""Tests of models that are distributed over two processes: DTensor, tensor parallel, FSDP and collectives.

Both processes run all scenarios once, and the tests read what they found.
"""

import pickle
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn

import intus
from intus.core.analysis import walks
from intus.core.errors import CaptureError, InputError
from intus.viewing.scene import scene

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not dist.is_available() or not dist.is_gloo_available(), reason="torch was built without gloo"
    ),
]
ALONE = "one of them cannot run a collective again alone"


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def batch():
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(1))


def tensor_parallel(mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    return parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}), batch()


def dtensor(mesh):
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

    return distribute_module(net(), mesh), distribute_tensor(batch(), mesh, [Shard(0)])


def fsdp1(mesh):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(net(), device_id=torch.device("cpu")), batch()


def fsdp2(mesh):
    from torch.distributed.fsdp import fully_shard

    model = net()
    for part in (model[0], model[2]):
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh), batch()


def fsdp2_whole(mesh):
    """Gather all parameters in the root's group, which FSDP keeps gathered until the backward pass."""
    from torch.distributed.fsdp import fully_shard

    return fully_shard(net(), mesh=mesh), batch()


KINDS = {build.__name__: build for build in (tensor_parallel, dtensor, fsdp1, fsdp2, fsdp2_whole)}


def local(t):
    t = t.detach()
    t = t.to_local() if hasattr(t, "to_local") else t
    return (t.wait() if hasattr(t, "wait") else t).clone()


def facts(trace):
    """Return what the tests check of a trace, without objects of torch.distributed."""
    return {
        "types": [op.type for op in trace.ops],
        "parents": {op.label: [parent.label for parent in op.parents] for op in trace},
        "params": {op.label: [param.address for param in op.params] for op in trace.ops if op.params},
        "shapes": {op.label: (op.shape, op.local_shape, op.placement) for op in trace},
        "above_output": {param.address for op in above_output(trace) for param in op.params},
        "inputs_above_output": trace.outputs[0].has_input_ancestor,
        "cards": {op.label: str(op) for op in trace.ops},
        "on_page": {meta[2] for meta in scene(trace.graph)["metas"]},
        "model": {p.address: (p.shape, p.local_shape, p.placement, p.nbytes) for p in trace.graph.params},
    }


def above_output(trace):
    graph = trace.graph
    rows = set(walks.ancestors(graph, graph.rows("output_1")))
    return [op for op in trace.ops if op.row in rows]


def checks(report):
    return {check.label: (check.status, check.reasons) for check in report}


def recorded(kind, mesh):
    model, x = KINDS[kind](mesh)
    first = intus.trace(model, x)
    plain = local(model(x))
    second = intus.trace(model, x)
    values = [local(trace.outputs[0].value) for trace in (first, second)]
    return {
        **facts(first),
        "same": [torch.equal(value, plain) for value in values],
        "report": checks(first.validate()),
        "live": checks(intus.validate(model, x)),
        "after": torch.equal(local(model(x)), plain),
    }


def trained(kind, mesh, *, traced):
    """Return this process's part of the parameters after two steps, with traces in between or without."""
    model, x = KINDS[kind](mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        if traced:
            intus.validate(model, x) if step else intus.trace(model, x)
        out = model(x)
        (out.to_local() if hasattr(out, "to_local") else out).square().sum().backward()
        if traced:
            intus.trace(model, x, save="none")
        optimizer.step()
        optimizer.zero_grad()
    return [local(p) for p in model.parameters()]


def training(kind, mesh):
    pairs = zip(trained(kind, mesh, traced=True), trained(kind, mesh, traced=False), strict=True)
    return [torch.equal(one, other) for one, other in pairs]


def written(mesh):
    """Write through a DTensor and through its local part, with collectives in and between operations."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def forward(x):
        y = x * 2
        y.add_(1)
        z = y.redistribute(mesh, [Replicate()])
        total = torch.cumsum(y, 0)  # needs the rows of the other process
        part = y.to_local()
        part.mul_(3)
        return y, z, total, y.sum()

    x = distribute_tensor(batch(), mesh, [Shard(0)])
    trace = intus.trace(forward, x)
    plain = forward(x)
    try:
        trace.rerun({"mul_1": 0})
    except CaptureError as error:
        refused = str(error)
    return {
        **facts(trace),
        "same": [torch.equal(local(o.value), local(p)) for o, p in zip(trace.outputs, plain, strict=True)],
        "kept": torch.equal(local(trace["mul_1"].value), local(x) * 2),
        "report": checks(trace.validate()),
        "live": checks(intus.validate(forward, x)),
        "refused": refused,
    }


def collectives(mesh):
    """Call ``torch.distributed`` in a forward."""

    def forward(x):
        y = x * (dist.get_rank() + 1)
        copy = y + 0
        view = y[0]
        dist.all_reduce(y)
        parts = [torch.zeros(4, 8) for _ in range(2)]
        work = dist.all_gather(parts, copy, async_op=True)
        work.wait()
        return view * 1, parts[0] + parts[1]

    trace = intus.trace(forward, batch())
    return {
        **facts(trace),
        "values": [torch.equal(trace[name].value, batch() * 3) for name in ("all_reduce_1", "output_2")],
        "view": torch.equal(trace["output_1"].value, batch()[0] * 3),
        "kept": torch.equal(trace["mul_1"].value, batch() * (dist.get_rank() + 1)),
        "report": checks(trace.validate()),
    }


def one_traces(mesh):
    """Let one process trace, validate, compare and draw while the other runs the model."""
    _, distributed = dtensor(mesh)
    model, x = tensor_parallel(mesh)
    for run in (intus.trace, intus.validate):
        (run if dist.get_rank() == 0 else lambda model, x: model(x))(model, x)
    if dist.get_rank() == 0:
        trace = intus.trace(model, x, decompose=True)
        trace.validate(), intus.compare(trace, trace), str(trace), trace.show(), repr(trace["0"])
        # Rules about arguments without effect, here the second, read the values.
        assert intus.validate(lambda x: torch.where(x > 100, x, x * 0), distributed)
    else:
        model(x)
    total = torch.ones(3)
    dist.all_reduce(total)  # fails or hangs if one process has called another collective
    return total.tolist()


def gradients(mesh):
    """Compare the gradients of a trace with those of a plain backward pass; FSDP refuses."""
    model, x = tensor_parallel(mesh)
    model(x).square().sum().backward()
    expected = [local(p.grad) for p in model.parameters()]
    model.zero_grad()
    trace = intus.trace(model, x, grads=True)
    trace.output.square().sum().backward()
    same = [torch.equal(local(p.grad), one) for p, one in zip(model.parameters(), expected, strict=True)]
    try:
        intus.trace(*fsdp2(mesh), grads=True)
    except CaptureError as error:
        return {"same": same, "shape": tuple(local(trace["linear_1"].grad).shape), "refused": str(error)}


def saved(mesh, folder):
    """Save a trace with values, which is refused, and one without."""
    model, x = dtensor(mesh)
    try:
        intus.trace(model, x).save(f"{folder}/values{dist.get_rank()}.trace")
    except InputError as error:
        refused = str(error)
    path = f"{folder}/graph{dist.get_rank()}.trace"
    trace = intus.trace(model, x, save="none")
    trace.save(path)
    return {"refused": refused, "loaded": facts(intus.load(path)) == facts(trace)}


def run(rank, folder):
    """Run all scenarios in one of the two processes and write what they returned, or raised."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),  # of a collective that the other process does not call
    )
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("part",))
    scenarios = {name: (lambda name=name: recorded(name, mesh)) for name in KINDS}
    scenarios |= {f"train {name}": (lambda name=name: training(name, mesh)) for name in KINDS}
    scenarios |= {
        one.__name__: (lambda one=one: one(mesh)) for one in (written, collectives, one_traces, gradients)
    }
    scenarios["saved"] = lambda: saved(mesh, folder)
    found = {name: scenario() for name, scenario in scenarios.items()}
    with open(f"{folder}/{rank}.pickle", "wb") as file:
        pickle.dump(found, file)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return what both processes found."""
    folder = tmp_path_factory.mktemp("ranks")
    context = torch.multiprocessing.spawn(run, (str(folder),), nprocs=2, join=False)
    for _ in range(60):
        if context.join(timeout=2):
            break
    else:
        for process in context.processes:
            process.kill()
        pytest.fail("the two processes wait for each other")
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(2)]


def unproven(report):
    return {label: reasons for label, (status, reasons) in report.items() if status == "unproven"}


def test_tensor_parallel(found):
    for one in found:
        one = one["tensor_parallel"]
        assert one["types"] == [
            *("view_as", "linear", "view_as", "relu", "view_as", "linear"),
            *("all_reduce", "wrap_tensor_autograd", "view_as"),
        ]
        assert one["params"] == {"linear_1_2": ["0.weight", "0.bias"], "linear_2_6": ["2.weight", "2.bias"]}
        assert one["parents"]["all_reduce_1_7"] == ["linear_2_6"]
        assert one["shapes"]["linear_1_2"] == ((4, 16), (4, 8), "part=2: Shard(dim=1)")
        assert one["shapes"]["linear_2_6"] == ((4, 8), (4, 8), "part=2: Partial(sum)")
        assert one["model"]["0.weight"] == ((16, 8), (8, 8), "part=2: Shard(dim=0)", 256)
        assert one["model"]["2.bias"] == ((8,), (8,), "part=2: Replicate()", 32)
        where = "cpu, part=2: Shard(dim=1), 4×8 in this process"
        assert f"4×16 float32 on {where}, 128 B" in one["cards"]["linear_1_2"]
        assert "0.weight 16×8 (part=2: Shard(dim=0))" in one["cards"]["linear_1_2"]
        assert where in one["on_page"]


def test_dtensor_is_proven(found):
    for one in found:
        one = one["dtensor"]
        assert one["types"] == ["linear", "relu", "linear"]
        assert one["shapes"]["linear_1_1"] == ((4, 16), (2, 16), "part=2: Shard(dim=0)")
        for report in (one["report"], one["live"]):
            assert {status for status, _ in report.values()} == {"proven"}
            assert len(report) == 4


def test_parameters_of_fsdp(found):
    for one in found:
        assert one["fsdp1"]["above_output"] == {"_fsdp_wrapped_module._flat_param"}
        assert "all_gather" in one["fsdp1"]["types"]
        for kind in ("fsdp2", "fsdp2_whole"):
            assert one[kind]["above_output"] == {"0.weight", "0.bias", "2.weight", "2.bias"}
            assert one[kind]["model"]["0.weight"] == ((16, 8), (8, 8), "part=2: Shard(dim=0)", 256)
            assert [type_ for type_ in one[kind]["types"] if type_.startswith("all_gather_single")]


@pytest.mark.parametrize("kind", list(KINDS))
def test_same_output_with_and_without_trace(found, kind):
    for one in found:
        assert one[kind]["same"] == [True, True]
        assert one[kind]["after"]
        assert one[kind]["inputs_above_output"]


@pytest.mark.parametrize("kind", list(KINDS))
def test_only_collectives_and_what_fsdp_freed_are_unproven(found, kind):
    for one in found:
        for report in (one[kind]["report"], one[kind]["live"]):
            assert "failed" not in {status for status, _ in report.values()}
            for label, reasons in unproven(report).items():
                if kind.startswith("fsdp2") and label.startswith(("linear", "split_with_sizes_copy")):
                    continue  # they take or return memory that FSDP frees
                if kind == "fsdp1" and label.startswith("set_data"):
                    continue  # while the pass runs, the parameter has the gathered memory
                assert ALONE in reasons[0], label
                assert label.startswith(("all_reduce", "all_gather")), label


@pytest.mark.parametrize("kind", list(KINDS))
def test_training_with_traces_in_between(found, kind):
    for one in found:
        assert one[f"train {kind}"]
        assert all(one[f"train {kind}"])


def test_writes_through_dtensor_and_its_local_part(found):
    for one in found:
        one = one["written"]
        parents = one["parents"]
        assert one["same"] == [True] * 4
        assert one["kept"]
        assert parents["all_gather_into_tensor_1_3"] == parents["cumsum_1_7"] == ["add_1_2"]
        assert parents["sum_1_10"] == ["mul_2_9"]
        for report in (one["report"], one["live"]):
            assert "failed" not in {status for status, _ in report.values()}
            assert ALONE in report["cumsum_1_7"][1][0]  # a collective inside an operation
        assert ALONE in one["refused"]


def test_functions_of_torch_distributed(found):
    for one in found:
        one = one["collectives"]
        assert one["values"] == [True, True]
        assert one["view"]
        assert one["kept"]  # the value from before the write
        assert set(one["parents"]["mul_2_9"]) == {"all_reduce_1_4", "getitem_1_3"}
        assert "add_1_2" in one["parents"]["all_gather_1_7"]
        assert one["parents"]["add_2_10"] == ["all_gather_1_7", "all_gather_2_8"]
        assert ALONE in one["report"]["all_reduce_1_4"][1][0]


def test_trace_and_validation_by_one_process_only(found):
    assert [one["one_traces"] for one in found] == [[2.0, 2.0, 2.0]] * 2


def test_gradients(found):
    for one in found:
        assert one["gradients"]["same"] == [True] * 4
        assert one["gradients"]["shape"] == (4, 8)
        assert one["gradients"]["refused"].startswith("grads=True cannot be used with FSDP")


def test_files(found):
    for one in found:
        assert one["saved"]["refused"].startswith("The value of input_1 is a DTensor")
        assert one["saved"]["loaded"]
