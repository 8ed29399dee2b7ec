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
from intus.core import walks
from intus.core.errors import CaptureError, InputError

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch was built without gloo"
)
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
        "params": {op.type: [param.address for param in op.params] for op in trace.ops if op.params},
        "shapes": {op.label: (op.shape, op.local_shape, op.placement) for op in trace},
        "above_output": {param.address for op in walked(trace) for param in op.params},
        "inputs_above_output": trace.outputs[0].has_input_ancestor,
        "model": {p.address: (p.shape, p.local_shape, p.placement, p.nbytes) for p in trace.graph.params},
    }


def walked(trace):
    graph = trace.graph
    rows = walks.ancestors(graph, [graph.rows("output_1")[0]])
    return [op for op in trace.ops if op.row in set(rows)]


def checks(report):
    return {check.label: (check.status, check.reasons) for check in report}


def recorded(kind, mesh):
    model, x = KINDS[kind](mesh)
    first = intus.trace(model, x)
    plain = local(model(x))
    second = intus.trace(model, x)
    values = [local(trace.outputs[0].value) for trace in (first, second)]
    return {
        **facts(second),
        "same": [torch.equal(value, plain) for value in values],
        "report": checks(second.validate()),
        "live": checks(intus.validate(model, x)),
        "after": torch.equal(local(model(x)), plain),
    }


def trained(kind, mesh, *, traced):
    """Return this part of the parameters after three steps, with traces in between or without."""
    model, x = KINDS[kind](mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        if traced:
            intus.trace(model, x).validate()
            intus.validate(model, x)
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
    """Write through a DTensor and through its local part, between collectives of both kinds."""
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
    model, x = tensor_parallel(mesh)
    for run in (intus.trace, intus.validate):
        (run if dist.get_rank() == 0 else lambda model, x: model(x))(model, x)
    if dist.get_rank() == 0:
        trace = intus.trace(model, x, decompose=True)
        trace.validate(), intus.compare(trace, trace), str(trace), trace.show(), repr(trace["0"])
    else:
        model(x)
    total = torch.ones(3)
    dist.all_reduce(total)  # fails or hangs if one process has called another collective
    return total.tolist()


def saved(mesh):
    model, x = dtensor(mesh)
    trace = intus.trace(model, x, grads=True)
    trace.output.to_local().sum().backward()
    try:
        trace.save(FOLDER + f"/whole{dist.get_rank()}.trace")
    except InputError as error:
        refused = str(error)
    structure = FOLDER + f"/graph{dist.get_rank()}.trace"
    intus.trace(model, x, save="none").save(structure)
    return {
        "refused": refused,
        "grads": [tuple(local(op.grad).shape) for op in trace.ops],
        "loaded": facts(intus.load(structure))["shapes"],
    }


FOLDER = ""


def run(rank, folder):
    """Run all scenarios in one of the two processes and write what they returned, or raised."""
    from torch.distributed.device_mesh import init_device_mesh

    globals()["FOLDER"] = folder
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
        one.__name__: (lambda one=one: one(mesh)) for one in (written, collectives, one_traces, saved)
    }
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
