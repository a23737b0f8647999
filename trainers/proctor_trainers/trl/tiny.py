"""A small random model, created locally, for a machine without a GPU or a network.

The purpose of the model is a complete training run with rewards, within seconds, without learning.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

VOCABULARY = 1500


def tiny_model(tokenizer: Any, seed: int = 0) -> Any:
    """Return a Qwen2 model with two layers of width 64, for the given tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    return Qwen2ForCausalLM(config)


def tiny_tokenizer() -> Any:
    """Return a byte-level BPE tokenizer with the chat template by which TRL detects Qwen.

    TRL knows from the template how Qwen calls tools. The vocabulary comes from the files of this
    package. With a token per byte, prompts with tool descriptions would be so long that a CPU
    would need a minute per step.
    """
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from tokenizers.trainers import BpeTrainer
    from transformers import PreTrainedTokenizerFast

    end, begin, turn_end = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
    model = Tokenizer(BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[end, begin, turn_end],
        show_progress=False,
    )
    template = files("trl").joinpath("chat_templates", "qwen2_5.jinja").read_text(encoding="utf-8")
    words = (
        each.read_text(encoding="utf-8") for each in files(__package__).iterdir() if each.is_file()
    )
    model.train_from_iterator([template, *words], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model,
        pad_token=end,
        eos_token=turn_end,
        additional_special_tokens=[begin],
    )
    tokenizer.chat_template = template
    return tokenizer
