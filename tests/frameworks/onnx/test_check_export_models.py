"""``check_export`` of transformers' models: no false alarm, and a changed parameter is named."""

import copy
import random
import warnings

import pytest
import torch
import transformers

import intus

_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_TEXT = {**_SMALL, "vocab_size": 50}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
MODELS = {
    "LlamaForCausalLM": _GROUPED,
    "Qwen2ForCausalLM": _GROUPED,
    "RobertaModel": _TEXT,
    "DistilBertModel": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": 50},
    "ViTModel": {**_SMALL, "image_size": 32, "patch_size": 8},
    "ResNetModel": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2], "layer_type": "basic"},
    "ConvNextModel": {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
    "MobileNetV2Model": {"depth_multiplier": 0.25},
}


@pytest.mark.parametrize(
    "name",
    [
        "LlamaForCausalLM",
        *(pytest.param(one, marks=pytest.mark.long) for one in MODELS if one != "LlamaForCausalLM"),
    ],
)
def test_export_agrees_and_a_changed_parameter_is_named(name, tmp_path):
    torch.manual_seed(0)
    class_ = getattr(transformers, name)
    model = class_(class_.config_class(**MODELS[name])).eval()
    model.config.use_cache = False
    for param in model.parameters():
        if param.dim() == 1:  # biases are 0 and norms 1, and the exporter would merge equal ones
            param.data += 0.3 * torch.randn_like(param)
    is_image = model.main_input_name == "pixel_values"
    x = torch.randn(2, 3, 32, 32) if is_image else torch.arange(12).reshape(2, 6) + 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        torch.onnx.export(model, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    check = intus.check_export(model, tmp_path / "net.onnx", x)
    assert check, str(check)
    names = [name for name, _ in model.named_parameters()]
    for changed in random.Random(0).sample(names, 5):
        other = copy.deepcopy(model)
        param = other.get_parameter(changed)
        param.data += 0.1 * param.data.abs().mean() * torch.randn_like(param)
        check = intus.check_export(other, tmp_path / "net.onnx", x)
        if check:  # it has no effect: the softmax ignores what the bias of a key adds
            ends = check.table[check.table.a.str.startswith("output_")]
            assert ends.verdict.isin(["equal", "close"]).all()
            continue
        why = " ".join(check.first["why"])
        if "other parameters are combined there" in why:  # a batch norm that was folded into a convolution
            assert check.first["module"].rpartition(".")[0] == changed.rpartition(".")[0].rpartition(".")[0]
        else:
            assert f"{changed} of a and" in why, (changed, check.first)
