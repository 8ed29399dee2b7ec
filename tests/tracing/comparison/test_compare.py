"""``compare`` finds the operation at which two passes diverge, and raises no false alarm."""

import copy
from html import escape
from xml.etree import ElementTree

import pytest
import torch
import torch.nn.functional as F
from compare_models import Llama
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformer_models import bert, gpt2, llama
from zoo_models import ZOO, Cnn, make

import intus
from intus import compare
from intus.tracing.comparison.values import differences
from intus.tracing.comparison.values.elements import plain


def difference(a, b):
    return differences.difference(plain(a), plain(b))


def rounding(*tensors):
    return differences.rounding(*map(plain, tensors))


@pytest.fixture(scope="module")
def pair():
    """Return (BERT, its inputs, its trace), with weights so large that a change reaches the output."""
    torch.manual_seed(0)
    model, inputs = bert()
    model.eval()
    return enlarged(model), inputs, intus.trace(model, inputs)


def enlarged(model):
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(6)
    return model


def wrong_eps(model):
    model.encoder.layer[1].attention.output.LayerNorm.eps = 1e-5
    return "layer_norm", "encoder.layer.1.attention.output.LayerNorm", "eps is 1e-12 in a, 1e-05 in b"


def tanh_gelu(model):
    model.encoder.layer[0].intermediate.intermediate_act_fn = nn.GELU(approximate="tanh")
    return (
        "gelu",
        "encoder.layer.0.intermediate.intermediate_act_fn",
        "approximate is 'none' in a, 'tanh' in b",
    )


def dropout_on(model):
    model.encoder.layer[0].output.dropout.train()
    return "dropout", "encoder.layer.0.output.dropout", "training is False in a, True in b"


def transposed_weight(model):
    weight = model.encoder.layer[1].attention.self.key.weight
    weight.data = weight.data.T.contiguous()
    return "linear", "encoder.layer.1.attention.self.key", "key.weight of a and of b differ by"


def no_position(model):
    model.embeddings.position_embeddings.weight.data.zero_()
    return "embedding", "embeddings.position_embeddings", "position_embeddings.weight of a and of b"


@pytest.mark.parametrize("bug", [wrong_eps, tanh_gelu, dropout_on, transposed_weight, no_position])
def test_changed_operation_is_first(pair, bug):
    model, inputs, trace = pair
    other = copy.deepcopy(model)
    type_, module, why = bug(other)
    table = compare(trace, intus.trace(other, inputs, seed=1))
    first = table.attrs["first"]
    assert first["a"].startswith(type_)
    assert first["module"] == module
    assert any(why in reason for reason in first["why"])
    assert first["a"] in str(table)
    assert module.removesuffix(".LayerNorm") in str(table)
    sources = table[table.is_source]
    assert sources.a.tolist() == [first["a"]]  # later operations only propagate the difference
    before = table.iloc[: sources.index[0]]
    assert set(before.verdict) == {"equal"}


def test_two_changes_are_both_sources(pair):
    model, inputs, trace = pair
    other = copy.deepcopy(model)
    wrong_eps(other), tanh_gelu(other)
    table = compare(trace, intus.trace(other, inputs))
    assert [label.partition("_")[0] for label in table[table.is_source].a] == ["gelu", "layer"]
    assert "Differences also originate at layer_norm" in str(table)


def test_missing_operation_is_only_in_a():
    def attention(q, k, v, scale=True):
        scores = q @ k.transpose(-2, -1)
        if scale:
            scores = scores / 3
        return scores.softmax(-1) @ v

    torch.manual_seed(0)
    x = tuple(torch.randn(4, 5) for _ in range(3))
    table = compare(intus.trace(attention, x), intus.trace(attention, (*x, False)))
    first = table.attrs["first"]
    assert (first["a"], first["b"]) == ("div_1_3", "")
    assert first["why"] == ["div_1_3 (3) ran only in a"]
    assert table.set_index("a").verdict["div_1_3"] == "only in a"
    assert "They diverge at div_1_3 (" in str(table)
    assert "The next op, softmax_1_4, differs by" in str(table)


def test_other_activation_is_a_region(pair):
    torch.manual_seed(0)
    model, inputs = gpt2()
    other = copy.deepcopy(enlarged(model).eval())
    other.transformer.h[1].mlp.act = nn.ReLU()
    table = compare(intus.trace(model, inputs), intus.trace(other, inputs))
    first = table.attrs["first"]
    assert first["module"] == "transformer.h.1.mlp.act"
    assert (first["a"].partition("_")[0], first["b"].partition("_")[0]) == ("mul", "relu")
    [why] = first["why"]
    assert why.startswith("a runs mul_")
    assert "tanh_2" in why
    assert why.endswith("where b runs relu_1_87")
    assert table[table.is_source].b.tolist() == ["relu_1_87"]


def test_other_function_is_first():
    x = torch.linspace(-1, 1, 5)
    first = compare(intus.trace(torch.relu, x), intus.trace(F.gelu, x)).attrs["first"]
    assert first["why"] == ["a runs relu_1_1 where b runs gelu_1_1"]
    assert (first["a"], first["b"]) == ("relu_1_1", "gelu_1_1")


def test_uncompared_tensors_are_not_equal():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x, wide=False):
            y = self.fc(x)
            return y @ torch.ones(3) if wide else y.sum()

    net, x = Net(), torch.ones(2, 4)
    whole = intus.trace(net, x)
    stopped = compare(whole, intus.trace(net, x, wide=True, on_error="keep"))
    assert "The pass of b ended with an exception: RuntimeError" in str(stopped)
    assert "Of the tensors that both have, none differs by more than rounding explains." in str(stopped)
    meta = intus.trace(copy.deepcopy(net).to("meta"), x.to("meta"))
    assert "No two values could be compared." in str(compare(whole, meta))
    assert "trace both on the same input" in str(compare(whole, intus.trace(net, x[:1])))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("build", [bert, gpt2, llama])
def test_other_dtype_has_no_first_difference(build, dtype):
    torch.manual_seed(0)
    model, inputs = build()
    trace = intus.trace(model.eval(), inputs)
    other = intus.trace(copy.deepcopy(model).to(dtype), inputs)
    table = compare(trace, other)
    assert table.attrs["first"] is None, str(table)
    unpaired = table[table.verdict.isin(["only in a", "only in b"])]
    assert (unpaired.a + unpaired.b).str.startswith("to_").all()  # casts that one of them does not need
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast = intus.trace(model, inputs)
    assert compare(trace, autocast).attrs["first"] is None
    ends = table[table.a == "output_1"]
    assert ends.verdict.tolist() == ["close"]
    assert 0 < float(ends.relative.iloc[0]) < 0.1


def test_change_in_other_dtype_is_first(pair):
    model, inputs, trace = pair
    other = copy.deepcopy(model).bfloat16()
    _, module, _ = transposed_weight(other)
    assert compare(trace, intus.trace(other, inputs)).attrs["first"]["module"] == module


@pytest.mark.parametrize("build", [bert, gpt2, llama])
def test_two_attention_implementations_agree(build):
    torch.manual_seed(0)
    model, inputs = build()
    trace = intus.trace(model.eval(), inputs)
    model.set_attn_implementation("eager")
    eager = intus.trace(model, inputs)
    table = compare(trace, eager)
    assert table.attrs["first"] is None, str(table)
    assert {"only in b"} <= set(table.verdict)
    for call, rows in trace.graph.call_outputs.items():  # outputs of modules are paired
        name = trace.graph.call_address(call)
        pairs = table[table.a == trace.graph.label(rows[0])]
        assert pairs.b.tolist() == [eager.graph.label(eager.graph.rows(name)[0])], name
        assert pairs.verdict.isin(["equal", "close"]).all()


def test_handwritten_llama_agrees():
    torch.manual_seed(0)
    model, inputs = llama()
    enlarged(model).eval()
    ours = Llama(model.config).copy_from(model)
    trace = intus.trace(model, inputs)
    table = compare(trace, intus.trace(ours, inputs["input_ids"]))
    assert table.attrs["first"] is None, str(table)
    linears = table[table.a.str.startswith("linear")]
    assert linears.b.str.startswith("linear").all()
    assert linears.verdict.isin(["equal", "close"]).all()
    q, k = table[table.module_a.str.endswith("0.self_attn.q_proj")], table[table.module_b == "blocks.0.wk"]
    assert (q.module_b == "blocks.0.wq").all()  # ours runs k first
    assert (k.module_a == "model.layers.0.self_attn.k_proj").all()
    ours.blocks[1].scale = False
    first = compare(trace, intus.trace(ours, inputs["input_ids"])).attrs["first"]
    assert first["module"] == "model.layers.1.self_attn"
    assert "scaled_dot_product_attention_2" in first["why"][0]


def test_training_step():
    torch.manual_seed(0)
    model, x = make("cnn", training=True)
    before = intus.trace(model, x, seed=0)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    model(x).square().sum().backward()
    kept = copy.deepcopy(model)
    optimizer.step()
    table = compare(intus.trace(kept, x, seed=0), intus.trace(model, x, seed=0))
    assert table.attrs["first"]["module"] == "head"
    assert table.attrs["first"]["why"][0].startswith("head.weight of a and of b differ by")
    assert before["head"].value.shape == (2, 3)


def test_other_seed_differs_at_dropout():
    model, x = make("cnn", training=True)
    table = compare(intus.trace(model, x, seed=0), intus.trace(model, x, seed=1))
    assert table.attrs["first"]["a"].startswith("dropout")
    assert "it draws random numbers" in table.attrs["first"]["why"]
    assert compare(intus.trace(model, x, seed=0), intus.trace(model, x, seed=0)).verdict.eq("equal").all()


@pytest.mark.parametrize("name", list(ZOO))
def test_training_and_eval_mode(name):
    model, x = make(name)
    trace = intus.trace(model, x)
    assert compare(trace, intus.trace(model, x)).verdict.isin(["equal"]).all()
    first = compare(trace, intus.trace(model.train(), x, seed=0)).attrs["first"]
    if name in ("cnn", "encoder"):
        assert first["module"] == {"cnn": "bn", "encoder": "self_attn"}[name]
        assert "training is False in a, True in b" in first["why"]
    else:
        assert first is None


def test_loaded_traces(pair, tmp_path):
    model, inputs, trace = pair
    other = copy.deepcopy(model)
    _, module, _ = transposed_weight(other)
    for name, one in (("a", trace), ("b", intus.trace(other, inputs)), ("c", intus.trace(model, inputs))):
        one.save(tmp_path / name)
    a, b, c = (intus.load(tmp_path / name) for name in "abc")
    table = compare(a, b)
    assert table.attrs["first"]["module"] == module
    assert table.isolated_error.isna().all()
    assert compare(a, c).attrs["first"] is None


@pytest.mark.parametrize("saved", ["ab", "a", "b"])
def test_reason_is_given_where_saved_traces_hold_no_values(saved, tmp_path):
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 3)
    a = intus.trace(model, x)
    with torch.no_grad():
        model[2].bias += 0.5
    both = {"a": a, "b": intus.trace(model, x)}
    for name in saved:
        both[name].save(tmp_path / name)
        both[name] = intus.load(tmp_path / name)
    first = compare(both["a"], both["b"]).attrs["first"]
    assert first["module"] == "2"
    assert any(why.startswith("2.bias of a and of b may differ: ") for why in first["why"]), first


def test_partly_saved_traces(pair):
    model, inputs, _ = pair
    save = ["encoder.layer.0", "encoder.layer.1", "output_1"]
    a = intus.trace(model, inputs, save=save)
    other = copy.deepcopy(model)
    wrong_eps(other)
    table = compare(a, intus.trace(other, inputs, save=save))
    assert set(table[table.verdict != "not saved"].module_a) == {
        "encoder.layer.0.output.LayerNorm",
        "encoder.layer.1.output.LayerNorm",
        "",
    }


@pytest.mark.parametrize("change", [{"encoder.layer.0.attention": 0}, {"**.intermediate.dense.weight": 0}])
def test_rerun_in_either_order(pair, change):
    _, _, whole = pair
    without = whole.rerun(change)
    one, other = compare(whole, without), compare(without, whole)
    assert (one["verdict"] == other["verdict"]).all()
    assert "differs" in set(other["verdict"])
    assert one.attrs["first"]["a"] == other.attrs["first"]["a"]
    assert other.attrs["first"]["why"] == [why.replace("in b", "in a") for why in one.attrs["first"]["why"]]


def test_html_equals_text(pair):
    _, _, whole = pair
    found = compare(whole, whole.rerun({"encoder.layer.0.attention": 0}))
    shown = found._repr_html_()
    assert all(escape(line.strip()) in shown for line in found.attrs["summary"].splitlines())
    rows = ElementTree.fromstring(shown[shown.index("<table") :]).findall("tbody/tr")
    assert [row[3].text for row in rows] == [*found["verdict"][(at := found.attrs["at"]) - 3 : at + 4]]
    assert "<table" not in compare(whole, whole)._repr_html_()


def test_rerun_differences_are_not_rounding():
    torch.manual_seed(0)
    model, inputs = gpt2()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        whole = intus.trace(model.eval(), inputs)
        without = whole.rerun({"transformer.h.0.attn": lambda value: value * 0.99})
    found = compare(whole, without)
    assert set(found["verdict"]) == {"equal", "differs"}
    assert not torch.equal(whole["logits"].value, without["logits"].value)
    assert "within rounding" not in str(found)
    assert "output_1 (logits): relative difference" in str(found)


def test_nan_shapes_and_inputs():
    x = torch.tensor([1.0, -1.0])
    table = compare(intus.trace(lambda x: (x * 1).sqrt(), x), intus.trace(lambda x: (x * -1).sqrt(), x))
    row = table.set_index("a").loc["sqrt_1_2"]
    assert (row.nan_a, row.nan_b, row.verdict) == (1, 1, "differs")
    table = compare(intus.trace(lambda x: x.view(2, 1), x), intus.trace(lambda x: x.view(1, 2), x))
    assert table.attrs["first"]["why"][0] == "its shape is (2, 1) in a, (1, 2) in b"
    table = compare(intus.trace(torch.exp, x), intus.trace(torch.exp, x * 2))
    assert table.attrs["first"] == {
        "a": "input_1",
        "b": "input_1",
        "module": "",
        "why": ["the inputs differ"],
    }


def test_selection_is_a_plain_dataframe(pair):
    _, _, trace = pair
    table = compare(trace, trace)
    assert str(table).splitlines()[1] == "No tensor differs by more than rounding explains."
    assert type(table[table.verdict == "equal"]).__name__ == "DataFrame"
    assert list(table.columns[:5]) == ["a", "b", "verdict", "is_source", "relative"]


def test_compare_errors(pair):
    model, inputs, trace = pair
    with pytest.raises(ValueError, match="b is of type BertModel"):
        compare(trace, model)
    with pytest.raises(ValueError, match="save='all'"):
        compare(trace, intus.trace(model, inputs, save="none"))


def test_compare_has_no_side_effects():
    torch.manual_seed(0)
    model, x = Cnn(), torch.randn(2, 1, 8, 8)
    a, b = intus.trace(model, x, seed=0), intus.trace(model, x, seed=1)
    kept = [{row: value.clone() for row, value in t.values.items()} for t in (a, b)]
    state, before = torch.get_rng_state(), copy.deepcopy(model.state_dict())
    compare(a, b)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    for trace, values in zip((a, b), kept, strict=True):
        assert all(torch.equal(trace.values[row], value) for row, value in values.items())


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_difference_equals_torch(numbers):
    a = torch.tensor(numbers)
    b = a.flip(0) * 0.5
    found = difference(a, b)
    x, y = a.double(), b.double()
    assert found.largest == pytest.approx(float((x - y).abs().max()))
    if found.fraction_different:
        scale = max(float(x.norm()), float(y.norm()))
        expected = float((x - y).norm()) / scale if scale else 0.0  # zeros of the other sign
        assert found.relative == pytest.approx(expected)
        if x.norm() * y.norm() > 0:
            assert found.cosine == pytest.approx(float(F.cosine_similarity(x, y, dim=0, eps=0)), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_covers_one_rounding(dtype):
    x = torch.randn(10_000, dtype=torch.float64)
    found = difference(x, x.to(dtype))
    assert rounding(x, x.to(dtype)) / 40 < found.relative < rounding(x, x.to(dtype))


def test_difference_of_many_blocks_equals_torch():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 400, generator=generator)
    y = (x + 1e-3 * torch.randn(300, 400, generator=generator) * (x > 0)).T.contiguous().T
    found, apart = difference(x, y), (x.double() - y.double()).flatten()
    assert found.largest == apart.abs().max()
    assert found.fraction_different == pytest.approx(float((x != y).double().mean()), rel=1e-12)
    assert found.relative == pytest.approx(float(apart.norm() / max(x.double().norm(), y.double().norm())))
    assert found.cosine == pytest.approx(
        float(F.cosine_similarity(x.double().ravel(), y.double().ravel(), 0))
    )
    assert difference(x, x.double()) == difference(x, x.T.contiguous().T) == (0, 0, 1, 0, 0, 0)


def test_difference_of_infinities_and_nan():
    inf, nan = float("inf"), float("nan")
    a, b = torch.tensor([3.0, 4.0, -inf, nan]), torch.tensor([3.0, 4.5, -inf, nan])
    found = difference(a, b)
    assert (found.largest, found.fraction_different, found.nan, found.other_nan) == (0.5, 0.25, 1, 1)
    assert found.relative == pytest.approx(0.5 / (9 + 4.5**2) ** 0.5)
    assert not found.lopsided
    assert difference(a, a) == (0.0, 0.0, 1.0, 0.0, 1, 1)
    assert difference(torch.tensor([1.0, inf]), torch.tensor([1.0, 2.0])).lopsided
    half = difference(torch.tensor([torch.finfo(torch.float32).min]), torch.tensor([-65504.0]).half())
    assert half.relative == 0


def test_zero_of_the_other_sign_is_close():
    zeros = torch.zeros(3)
    table = compare(intus.trace(lambda x: x * 1.0, zeros), intus.trace(lambda x: x * -1.0, zeros))
    assert table.verdict.tolist() == ["equal", "close", "close"]
    assert table.fraction_different.tolist() == [0, 1, 1]
    assert table.attrs["first"] is None
    nan = intus.trace(lambda x: x * float("nan"), zeros)
    assert compare(nan, nan).verdict.tolist() == ["equal"] * 3
    assert compare(nan, nan).nan_a.tolist() == [0, 3, 3]


def test_infinity_of_the_other_sign_differs():
    def model(factor):
        return lambda x: 1 / (x * factor)

    zeros = torch.zeros(3)
    table = compare(intus.trace(model(1.0), zeros), intus.trace(model(-1.0), zeros))
    assert table.verdict.tolist() == ["equal", "close", "differs", "differs"]
    assert table.attrs["first"]["a"].startswith(("reciprocal", "div", "rdiv"))


def test_nan_out_of_rounding_differs():
    def model(small):
        return lambda x: torch.sqrt(x + small)

    table = compare(intus.trace(model(1e-12), torch.zeros(3)), intus.trace(model(-1e-12), torch.zeros(3)))
    assert table.verdict.tolist()[-2:] == ["differs", "differs"]


def test_outputs_in_another_order():
    class Heads(nn.Module):
        def __init__(self, order):
            super().__init__()
            torch.manual_seed(0)
            self.heads, self.order = nn.ModuleList([nn.Linear(3, 4), nn.Linear(3, 4)]), order

        def forward(self, x):
            found = [head(x) for head in self.heads]
            return tuple(found[at] for at in self.order)

    x = torch.randn(2, 3)
    one, two, twice = (intus.trace(Heads(order), x) for order in ((0, 1), (1, 0), (0, 0)))
    assert compare(one, one).agree
    assert compare(twice, twice).agree
    result = compare(one, two)
    assert not result.agree
    assert "Output 1 of Heads is output 2 of Heads." in str(result)


def test_norm_that_amplifies_rounding_is_no_source():
    """The float64 result of the same layer is the judge: rounding the input to float32 moves it by 0.1."""
    torch.manual_seed(0)
    norm, x = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 4)), 1000 + 1e-3 * torch.randn(4, 16)
    own = intus.trace(norm, x)
    table = compare(own, intus.trace(copy.deepcopy(norm).double(), x.double()))
    assert table.attrs["first"] is None, str(table)
    assert not table.agree
    assert "Rounding takes up to" in str(table)
    other = copy.deepcopy(norm).double()
    other[0].eps = 1e-4
    table = compare(own, intus.trace(other, x.double()))
    assert table.attrs["first"]["why"] == ["eps is 1e-05 in a, 0.0001 in b"]


def test_cast_of_one_side_alone_does_not_agree():
    class Rounded(nn.Linear):
        def forward(self, x):
            return super().forward(x.bfloat16().float())

    torch.manual_seed(0)
    linear, x = nn.Linear(8, 4), torch.randn(2, 8)
    other = Rounded(8, 4)
    other.load_state_dict(linear.state_dict())
    table = compare(intus.trace(linear, x), intus.trace(other, x))
    assert not table.agree
    assert compare(intus.trace(linear, x), intus.trace(copy.deepcopy(linear).bfloat16(), x.bfloat16())).agree
