"""Make small transformers of many architectures, each of which takes tensors and returns one."""

from __future__ import annotations

import torch
import transformers as t
from torch import nn

_SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
_TEXT = {**_SIZES, "vocab_size": 50}
_IMAGE = {"image_size": 32, "num_channels": 3}


class _Wrapped(nn.Module):
    def __init__(self, model, keys, output):
        super().__init__()
        self.model, self.keys, self.output = model, keys, output

    def forward(self, *args):
        return getattr(self.model(**dict(zip(self.keys, args, strict=True))), self.output)


def _bert():
    return t.BertForTokenClassification(t.BertConfig(**_TEXT))


def _roberta():
    return t.RobertaForMaskedLM(t.RobertaConfig(**_TEXT))


def _distilbert():
    sizes = {"vocab_size": 50, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
    return t.DistilBertForSequenceClassification(t.DistilBertConfig(**sizes))


def _gpt2():
    sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return t.GPT2LMHeadModel(t.GPT2Config(**sizes, use_cache=False))


def _llama():
    return t.LlamaForCausalLM(t.LlamaConfig(**_TEXT, num_key_value_heads=1, use_cache=False))


def _t5():
    sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    return t.T5EncoderModel(t.T5Config(**sizes))


def _vit():
    return t.ViTForImageClassification(t.ViTConfig(**_SIZES, **_IMAGE, patch_size=8, num_labels=5))


def _swin():
    sizes = {"patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}
    return t.SwinForImageClassification(t.SwinConfig(image_size=32, **sizes, num_labels=5))


def _segformer():
    config = t.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
    )
    return t.SegformerForSemanticSegmentation(config)


_OF_IDS = {"llama": _llama}
_OF_TEXT = {"bert": _bert, "roberta": _roberta, "distilbert": _distilbert, "gpt2": _gpt2, "t5": _t5}
_OF_IMAGES = {"vit": _vit, "swin": _swin, "segformer": _segformer}
NAMES = (*_OF_IDS, *_OF_TEXT, *_OF_IMAGES)


def made(name):
    """Return a model with weights that differ from layer to layer, and its inputs."""
    torch.manual_seed(1)
    ids, mask = torch.randint(3, 49, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    if name in _OF_IMAGES:
        model, inputs = _OF_IMAGES[name](), {"pixel_values": torch.randn(2, 3, 32, 32)}
    elif name in _OF_TEXT:
        model, inputs = _OF_TEXT[name](), {"input_ids": ids, "attention_mask": mask}
    else:
        model, inputs = _OF_IDS[name](), {"input_ids": ids}
    output = "last_hidden_state" if name == "t5" else "logits"
    wrapped = _Wrapped(model, tuple(inputs), output).eval()
    for parameter in wrapped.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    for module in wrapped.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2)
    return wrapped, tuple(inputs.values())
