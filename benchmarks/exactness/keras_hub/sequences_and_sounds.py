"""Models that translate a text or a sound to a text."""

from benchmarks.exactness.data import integers, reals
from benchmarks.exactness.keras_hub.programs import (
    ROWS,
    class_loss,
    hub,
    optimizer,
    program,
    regressed,
    tokens,
)
from benchmarks.exactness.keras_hub.text_generators import ROTARY
from benchmarks.exactness.registry import family

WORDS, LENGTH = 10, 5
SMALL = dict(
    vocabulary_size=WORDS,
    num_layers=2,
    num_heads=2,
    hidden_dim=4,
    intermediate_dim=8,
)


def texts(*sides):
    return {
        f"{side}_{name}": array
        for number, side in enumerate(sides)
        for name, array in tokens(WORDS, LENGTH, seed=number).items()
    }


def translated(backbone, task, x):
    """A backbone that guesses each next word of a second sequence."""
    model = task(backbone, preprocessor=None)
    model.compile(optimizer(), class_loss(), sampler="greedy")
    prompt = {name: array[:3] for name, array in x.items()}
    mask = prompt["decoder_padding_mask"].copy()
    mask[:, :2], mask[:, 2:] = 1, 0
    prompt["decoder_padding_mask"] = mask
    return program(
        model, x, integers(WORDS, ROWS, LENGTH, seed=4), None, prompt
    )


@family("bart")
def bart():
    backbone = hub().BartBackbone(max_sequence_length=LENGTH, **SMALL)
    return translated(
        backbone, hub().BartSeq2SeqLM, texts("encoder", "decoder")
    )


@family("t5", float32=ROTARY)
def t5():
    return translated(
        hub().T5Backbone(**SMALL),
        hub().T5Seq2SeqLM,
        texts("encoder", "decoder"),
    )


@family("t5gemma", float32=ROTARY)
def t5gemma():
    side = dict(
        hidden_dim=16,
        intermediate_dim=32,
        num_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        layer_types=["sliding_attention", "full_attention"],
    )
    backbone = hub().T5GemmaBackbone(
        vocabulary_size=WORDS,
        **{f"encoder_{name}": value for name, value in side.items()},
        **{f"decoder_{name}": value for name, value in side.items()},
        dropout_rate=0.0,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        query_pre_attn_scalar=1.0,
        attention_bias=False,
        hidden_activation="gelu_approximate",
        initializer_range=0.02,
        attention_dropout=0.0,
        sliding_window=4,
        final_logit_softcapping=30.0,
    )
    return translated(
        backbone, hub().T5GemmaSeq2SeqLM, texts("encoder", "decoder")
    )


@family("edrec")
def edrec():
    backbone = hub().EdRecBackbone(
        vocab_size=WORDS,
        num_layers_enc=2,
        num_layers_dec=2,
        num_heads=2,
        hidden_dim=4,
        intermediate_dim=8,
        dropout=0.0,
    )
    return translated(
        backbone, hub().EdRecSeq2SeqLM, texts("encoder", "decoder")
    )


@family("whisper")
def whisper():
    backbone = hub().WhisperBackbone(
        max_encoder_sequence_length=6, max_decoder_sequence_length=6, **SMALL
    )
    x = {"encoder_features": reals(ROWS, 5, 80), **texts("decoder")}
    return regressed(backbone, x)


@family("moonshine", float32=ROTARY)
def moonshine():
    backbone = hub().MoonshineBackbone(
        vocabulary_size=WORDS,
        hidden_dim=32,
        filter_dim=32,
        encoder_num_layers=2,
        decoder_num_layers=2,
        encoder_num_heads=4,
        decoder_num_heads=4,
        intermediate_dim=128,
        feedforward_expansion_factor=4,
        encoder_use_swiglu_activation=False,
        decoder_use_swiglu_activation=True,
        max_position_embeddings=2048,
        partial_rotary_factor=0.62,
        dropout=0.0,
    )
    x = {
        "encoder_input_values": reals(ROWS, 2000, 1),
        "encoder_padding_mask": integers(2, ROWS, 2000, lowest=1) == 1,
        **texts("decoder"),
    }
    x["decoder_padding_mask"] = x["decoder_padding_mask"] == 1
    return translated(backbone, hub().MoonshineAudioToText, x)
