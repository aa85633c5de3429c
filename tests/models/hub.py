"""KerasHub's models without weights, as small as their settings allow."""

import keras

from tests.models.registry import (
    fitted,
    images,
    integers,
    model,
    sentences,
)

SIZES = dict(
    vocabulary_size=11, num_layers=2, hidden_dim=8, intermediate_dim=16
)
TEXT = dict(num_heads=2, max_sequence_length=6, **SIZES)
IN_FLOAT32 = dict(
    tolerance=1e-4,
    why="rotary positions and root-mean-square norms are computed in float32",
)
GROUPED = dict(num_query_heads=2, num_key_value_heads=1)


def models():
    """KerasHub's models; it takes seconds to import and may be missing."""
    import keras_hub

    return keras_hub.models


def hub(make=None, **settings):
    if make is None:
        return lambda make: hub(make, **settings)
    return model("hub", needs="keras_hub", **settings)(make)


def token_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def texts(length=6):
    """Tokens and what of them is no padding, as KerasHub's models take them."""
    tokens = sentences(11, 9, length)
    return {"token_ids": tokens, "padding_mask": (tokens != 0).astype("int32")}


def causal(result):
    """Fits a model that guesses the next token."""
    # Not Adam: it makes steps of the rounding in gradients that are 0.
    result.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        token_loss(),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    whole = texts(7)
    x = {name: tokens[:, :-1] for name, tokens in whole.items()}
    weights = whole["padding_mask"][:, 1:].astype(keras.config.floatx())
    return fitted(result, x, whole["token_ids"][:, 1:], sample_weight=weights)


@hub
def bert_text_classifier():
    backbone = models().BertBackbone(**TEXT)
    result = models().BertTextClassifier(backbone, 3, preprocessor=None)
    result.compile(
        keras.optimizers.AdamW(0.01), token_loss(), metrics=["accuracy"]
    )
    x = {**texts(), "segment_ids": integers(2, 9, 6)}
    return fitted(result, x, integers(3, 9))


@hub
def bert_masked_lm():
    backbone = models().BertBackbone(**TEXT)
    result = models().BertMaskedLM(backbone, preprocessor=None)
    result.compile(keras.optimizers.AdamW(0.01), token_loss())
    x = {
        **texts(),
        "segment_ids": integers(2, 9, 6),
        "mask_positions": integers(6, 9, 2, seed=3),
    }
    return fitted(result, x, integers(11, 9, 2, seed=4))


@hub
def gpt2_causal_lm():
    backbone = models().GPT2Backbone(**TEXT)
    return causal(models().GPT2CausalLM(backbone, preprocessor=None))


@hub(**IN_FLOAT32)
def gemma_causal_lm_with_adapters():
    backbone = models().GemmaBackbone(head_dim=4, **SIZES, **GROUPED)
    backbone.enable_lora(2)
    return causal(models().GemmaCausalLM(backbone, preprocessor=None))


@hub(**IN_FLOAT32)
def llama_causal_lm():
    backbone = models().LlamaBackbone(**SIZES, **GROUPED)
    return causal(models().LlamaCausalLM(backbone, preprocessor=None))


@hub(
    precision="float32",  # Its experts know nothing of float64.
    tolerance=2e-3,
    why="one device parts from itself by 3e-4 when each of the first weights "
    "moves by its last bit",
)
def mixtral_causal_lm():
    backbone = models().MixtralBackbone(num_experts=3, **SIZES, **GROUPED)
    return causal(models().MixtralCausalLM(backbone, preprocessor=None))


@hub
def bart_seq2seq_lm():
    backbone = models().BartBackbone(**TEXT)
    result = models().BartSeq2SeqLM(backbone, preprocessor=None)
    result.compile(keras.optimizers.AdamW(0.01), token_loss())
    x = {
        f"{side}_{name}": tokens
        for side in ("encoder", "decoder")
        for name, tokens in texts().items()
    }
    return fitted(result, x, integers(11, 9, 6, seed=4))


@hub
def vit_image_classifier():
    backbone = models().ViTBackbone(
        image_shape=(8, 8, 3),
        patch_size=4,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=16,
        dropout_rate=0.1,
    )
    result = models().ViTImageClassifier(backbone, 3, preprocessor=None)
    result.compile(keras.optimizers.AdamW(0.01), token_loss())
    return fitted(result, images(9, 8, 8, 3), integers(3, 9))


@hub
def resnet_image_classifier():
    backbone = models().ResNetBackbone(
        image_shape=(16, 16, 3),
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 64],
        stackwise_num_blocks=[1, 1],
        stackwise_num_strides=[1, 2],
        block_type="basic_block",
    )
    result = models().ResNetImageClassifier(backbone, 3, preprocessor=None)
    result.compile(keras.optimizers.SGD(0.01), token_loss())
    return fitted(result, images(9, 16, 16, 3), integers(3, 9))
