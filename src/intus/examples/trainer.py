"""A small GPT-2 that learns to write Python, trained by Hugging Face's ``Trainer`` with one callback.

Needs transformers and accelerate. Start ``intus serve``, then run:  python -m intus.examples.trainer
"""

import tempfile
from typing import Any

import torch

from intus.callbacks import TrainerProbe
from intus.examples.python_source import CHARACTERS, LENGTH, read


def train(host: str = "127.0.0.1", port: int = 8082, epochs: int = 5, run: str | None = None) -> None:
    """Train for some epochs; after each, run the probe set and send its layers to the server."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    torch.manual_seed(0)
    codes, kinds, brackets = read()
    order = torch.randperm(len(codes)).tolist()
    held_out, learn = order[:150], order[150:]
    sizes = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": LENGTH, "vocab_size": len(CHARACTERS)}
    dropped = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    options: dict[str, Any] = {**sizes, **dropped, "bos_token_id": 0, "eos_token_id": 0}

    labels = {"kind of word": [kinds[k] for k in held_out], "brackets": [brackets[k] for k in held_out]}
    layers = ["transformer.wte", *(f"transformer.h.{k}.mlp" for k in range(3)), "lm_head"]
    watching = TrainerProbe(
        host,
        port,
        name="GPT-2 (Trainer)",
        run=run,
        which=lambda model, operation: operation.address in layers,
        probe_set=({"input_ids": codes[held_out]}, labels),
    )
    with tempfile.TemporaryDirectory() as folder:
        loop: dict[str, Any] = {
            "num_train_epochs": epochs,
            "per_device_train_batch_size": 64,
            "learning_rate": 3e-3,
        }
        quiet: dict[str, Any] = {
            "report_to": [],
            "save_strategy": "no",
            "disable_tqdm": True,
            "logging_steps": 50,
        }
        Trainer(
            GPT2LMHeadModel(GPT2Config(**options)),
            TrainingArguments(output_dir=folder, use_cpu=not torch.cuda.is_available(), **loop, **quiet),
            train_dataset=[{"input_ids": codes[k], "labels": codes[k]} for k in learn],
            callbacks=[watching],
        ).train()


if __name__ == "__main__":
    train()
