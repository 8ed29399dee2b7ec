# The first cell of a notebook of ten graphs: ten models people have, small in width and whole in structure.
import os

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from torch import nn

import intus

TOKENS = {"input_ids": torch.ones(1, 8, dtype=torch.long)}
IMAGE = {"pixel_values": torch.ones(1, 3, 32, 32)}
BOTH = TOKENS | {"decoder_input_ids": TOKENS["input_ids"][:, :4]}
SPECTRUM = {"input_features": torch.ones(1, 80, 3000), "decoder_input_ids": BOTH["decoder_input_ids"]}
TEXT = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
SOUND = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")}


def known(name, inputs, **config):
    cls = getattr(transformers, name)
    return cls(cls.config_class(**config)).eval(), inputs


MODELS = [
    lambda: known("GPT2LMHeadModel", TOKENS, n_embd=16, n_head=2, vocab_size=50),
    lambda: known("LlamaForCausalLM", TOKENS, num_hidden_layers=16, num_key_value_heads=1, **TEXT),
    lambda: known("MixtralForCausalLM", TOKENS, num_hidden_layers=4, num_key_value_heads=1, **TEXT),
    lambda: known("BertModel", TOKENS, num_hidden_layers=12, **TEXT),
    lambda: known("ResNetForImageClassification", IMAGE, embedding_size=8, hidden_sizes=[8, 16, 16, 32]),
    lambda: known("ViTModel", IMAGE, image_size=32, patch_size=8, hidden_size=16, num_attention_heads=2),
    lambda: known("T5Model", BOTH, d_model=16, d_kv=8, d_ff=16, num_heads=2, vocab_size=50),
    lambda: known("WhisperModel", SPECTRUM, d_model=16, **SOUND),
    lambda: (nn.LSTM(4, 8, 2), torch.ones(5, 1, 4)),
    lambda: (nn.Transformer(16, 2, 2, 2, 32), (torch.ones(5, 1, 16), torch.ones(4, 1, 16))),
]


def shown(number):
    model, inputs = MODELS[number]()
    return intus.trace(model, inputs)
