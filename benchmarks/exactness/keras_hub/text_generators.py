"""Language models that guess the next word, mixtures of experts among them."""

import keras

from benchmarks.exactness.keras_hub.programs import (
    class_loss,
    hub,
    optimizer,
    program,
    tokens,
)
from benchmarks.exactness.registry import family

WORDS, LENGTH = 12, 8
ROTARY = "rotary positions, norms and softmax are computed in float32"
IN_FLOAT32 = ("parts of it are float32 and take nothing else", "float32")
SMALL = dict(
    vocabulary_size=WORDS, num_layers=2, hidden_dim=8, intermediate_dim=16
)
HEADS = dict(num_heads=2, **SMALL)
GROUPED = dict(num_query_heads=4, num_key_value_heads=2, **SMALL)


def prompt():
    """Two words and room for six."""
    found = tokens(WORDS, 2, seed=5)
    return {
        "token_ids": _longer(found["token_ids"]),
        "padding_mask": _longer(found["padding_mask"]),
    }


def _longer(array):
    return keras.ops.convert_to_numpy(
        keras.ops.pad(array[:3], ((0, 0), (0, LENGTH - 2)))
    )


def guessed(backbone, task):
    """A backbone that guesses each next word."""
    model = task(backbone=backbone, preprocessor=None)
    model.compile(optimizer(), class_loss(), sampler="greedy")
    whole = tokens(WORDS, LENGTH + 1)
    x = {name: array[:, :-1] for name, array in whole.items()}
    weights = whole["padding_mask"][:, 1:].astype(keras.config.floatx())
    return program(
        model,
        x,
        whole["token_ids"][:, 1:],
        weights,
        prompt(),
    )


def gpt2_layouts(mesh):
    """Megatron-LM's layout; KerasHub has none of GPT-2."""
    layouts = keras.distribution.LayoutMap(mesh)
    layouts["token_embedding/embeddings"] = ("model", None)
    layouts[".*(query|key|value)/kernel"] = (None, "model", None)
    layouts[".*(query|key|value)/bias"] = ("model", None)
    layouts[".*attention_output/kernel"] = ("model", None, None)
    layouts[".*intermediate_dense/kernel"] = (None, "model")
    layouts[".*intermediate_dense/bias"] = ("model",)
    layouts[".*feedforward_output_dense/kernel"] = ("model", None)
    return layouts


def language_model(
    name, prefix, float32="", precision="float64", layouts=None, **settings
):
    """Registers a family whose classes have a common prefix.

    Without `layouts`, its layouts are those of the backbone, if that has any.
    """

    def of_backbone(mesh):
        backbone = getattr(hub(), f"{prefix}Backbone")
        own = getattr(backbone, "get_layout_map", lambda mesh: None)
        return own(mesh)

    def make():
        backbone = getattr(hub(), f"{prefix}Backbone")(**settings)
        return guessed(backbone, getattr(hub(), f"{prefix}CausalLM"))

    make.__module__ = __name__
    family(
        name,
        make,
        float32=float32,
        precision=precision,
        layouts=layouts or of_backbone,
    )


EXPERTS = dict(num_experts=4, top_k=2, moe_intermediate_dim=8)
LINEAR = dict(
    layer_types=["linear_attention"] * 3 + ["full_attention"],
    partial_rotary_factor=0.25,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=4,
    linear_value_head_dim=4,
    linear_conv_kernel_dim=4,
)

language_model("bloom", "Bloom", **{**HEADS, "num_heads": 4})
language_model("falcon", "Falcon", num_attention_heads=2, **SMALL)
language_model(
    "gpt2", "GPT2", layouts=gpt2_layouts, max_sequence_length=LENGTH, **HEADS
)
language_model(
    "gpt_neo_x",
    "GPTNeoX",
    ROTARY,
    max_sequence_length=LENGTH,
    rotary_percentage=0.5,
    **HEADS,
)
language_model(
    "gemma",
    "Gemma",
    ROTARY,
    head_dim=2,
    sliding_window_size=3,
    use_sliding_window_attention=True,
    attention_logit_soft_cap=50,
    final_logit_soft_cap=30,
    query_head_dim_normalize=False,
    use_post_ffw_norm=True,
    use_post_attention_norm=True,
    **GROUPED,
)
language_model(
    "gemma3",
    "Gemma3",
    ROTARY,
    image_size=16,
    head_dim=4,
    use_query_key_norm=True,
    use_post_ffw_norm=True,
    use_post_attention_norm=True,
    use_sliding_window_attention=True,
    sliding_window_size=1024,
    vision_encoder=None,
    **GROUPED,
)
language_model("llama", "Llama", ROTARY, **GROUPED)
language_model("llama3", "Llama3", ROTARY, **GROUPED)
language_model("mistral", "Mistral", ROTARY, sliding_window=2, **GROUPED)
language_model("opt", "OPT", max_sequence_length=LENGTH, **HEADS)
language_model("phi3", "Phi3", ROTARY, **GROUPED)
language_model("qwen", "Qwen", ROTARY, **GROUPED)
language_model("qwen3", "Qwen3", ROTARY, head_dim=2, **GROUPED)
language_model(
    "qwen3_5",
    "Qwen3_5",
    *IN_FLOAT32,
    **{**GROUPED, **LINEAR, "num_layers": 4},
    head_dim=8,
)
language_model(
    "smollm3",
    "SmolLM3",
    ROTARY,
    num_attention_heads=4,
    num_key_value_heads=2,
    attention_bias=False,
    attention_dropout=0.0,
    rope_layer_enabled_list=[True, True],
    layer_types=["attention", "attention"],
    mlp_bias=False,
    layer_norm_epsilon=1e-5,
    max_position_embeddings=128,
    rope_theta=10000.0,
    partial_rotary_factor=1.0,
    **SMALL,
)
language_model(
    "rwkv7",
    "RWKV7",
    ROTARY,
    vocabulary_size=WORDS,
    hidden_size=16,
    num_layers=2,
    head_size=4,
    intermediate_dim=32,
    gate_lora=8,
    mv_lora=4,
    aaa_lora=4,
    decay_lora=4,
)
language_model(
    "gpt_oss",
    "GptOss",
    ROTARY,
    num_experts=2,
    top_k=2,
    sliding_window=2,
    **GROUPED,
)
language_model(
    "mixtral",
    "Mixtral",
    *IN_FLOAT32,
    num_experts=2,
    top_k=2,
    sliding_window=2,
    **GROUPED,
)
language_model(
    "qwen_moe",
    "QwenMoe",
    *IN_FLOAT32,
    shared_expert_intermediate_dim=16,
    **EXPERTS,
    **GROUPED,
)
language_model(
    "qwen3_moe", "Qwen3Moe", *IN_FLOAT32, head_dim=2, **EXPERTS, **GROUPED
)
_moe = {**GROUPED, **LINEAR, **EXPERTS, "num_layers": 4}
del _moe["intermediate_dim"]
language_model(
    "qwen3_5_moe",
    "Qwen3_5Moe",
    *IN_FLOAT32,
    head_dim=8,
    shared_expert_intermediate_size=8,
    router_aux_loss_coefficient=0.01,
    **_moe,
)
