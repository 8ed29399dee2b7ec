"""Names of modules under those of another pass."""

from intus.core.analysis.modules import with_names
from intus.core.building import GraphBuilder, Scope


def test_each_name_that_another_module_has_is_left_to_it():
    builder = GraphBuilder("Net")
    row = builder.input("x", (2,), "float32")
    for name in ("left.fc", "left.out"):
        scopes = [Scope("left", "Block"), Scope(name, "Linear")]
        row = builder.op("relu", (2,), "float32", scope=scopes, parents=[(row, "0")])
    builder.output("y", row)
    graph, _ = builder.graph({"framework": "numpy"})
    taken = (name for name in ("right.fc", "right.out"))
    assert with_names(graph, {"left": "right"}, taken) == {
        "left": "right",
        "left.fc": "right.fc'",
        "left.out": "right.out'",
    }
