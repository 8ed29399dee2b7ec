"""Small transformers, with inputs."""

import torch
import transformers

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
IDS = torch.tensor([[3, 1, 4, 1, 5, 9]])
TEXT = SMALL | {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def gpt2():
    t = transformers
    config = t.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=16, bos_token_id=1, eos_token_id=2
    )
    return t.GPT2LMHeadModel(config), {"input_ids": IDS}


def bert():
    return transformers.BertModel(transformers.BertConfig(**TEXT)), {"input_ids": IDS}


def vit():
    config = transformers.ViTConfig(**SMALL, image_size=16, patch_size=8)
    return transformers.ViTModel(config), {"pixel_values": torch.randn(1, 3, 16, 16)}


def llama():
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=1)
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS}


def t5():
    config = transformers.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=50)
    return transformers.T5ForConditionalGeneration(config), {
        "input_ids": IDS,
        "decoder_input_ids": IDS[:, :3],
    }


def mamba():
    config = transformers.MambaConfig(
        hidden_size=16, num_hidden_layers=2, state_size=4, vocab_size=50, bos_token_id=1, eos_token_id=2
    )
    return transformers.MambaForCausalLM(config), {"input_ids": IDS}
