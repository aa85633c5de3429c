"""Models of pictures together with texts, and models that make pictures."""

from benchmarks.exactness.data import images, integers, reals
from benchmarks.exactness.keras_hub.programs import (
    ROWS,
    class_loss,
    hub,
    optimizer,
    pictures,
    program,
    regressed,
    tokens,
)
from benchmarks.exactness.keras_hub.text_generators import ROTARY
from benchmarks.exactness.keras_hub.vision import vit_backbone
from benchmarks.exactness.registry import family

WORDS = 32


def two_towers(prefix, length, **more):
    """A tower for pictures and one for texts, as the CLIP-like tests' are."""
    vision = getattr(hub(), f"{prefix}VisionEncoder")(
        16, 32, 2, 2, 64, image_shape=(32, 32, 3), name="vision_encoder"
    )
    text = getattr(hub(), f"{prefix}TextEncoder")(
        WORDS, 32, 32, 2, 2, 64, max_sequence_length=length, name="text_encoder"
    )
    backbone = getattr(hub(), f"{prefix}Backbone")(
        vision_encoder=vision, text_encoder=text, **more
    )
    x = {
        "images": pictures(32),
        "token_ids": integers(WORDS, ROWS, length, lowest=1),
    }
    return regressed(backbone, x)


@family("clip")
def clip():
    return two_towers("CLIP", 8, projection_dim=32)


@family("siglip")
def siglip():
    return two_towers("SigLIP", 8)


@family("metaclip_2")
def metaclip():
    return two_towers("MetaCLIP2", 8, projection_dim=32)


@family("pali_gemma", float32=ROTARY)
def pali_gemma():
    model = hub().PaliGemmaCausalLM(
        backbone=hub().PaliGemmaBackbone(
            vocabulary_size=WORDS,
            image_size=16,
            num_layers=2,
            num_query_heads=2,
            num_key_value_heads=1,
            hidden_dim=8,
            intermediate_dim=16,
            head_dim=4,
            vit_patch_size=4,
            vit_num_layers=2,
            vit_num_heads=2,
            vit_hidden_dim=8,
            vit_intermediate_dim=16,
        ),
        preprocessor=None,
    )
    model.compile(optimizer(), class_loss(), sampler="greedy")
    x = {
        **tokens(WORDS, 8),
        "images": pictures(16),
        "response_mask": integers(2, ROWS, 8),
    }
    prompt = {name: array[:3] for name, array in x.items()}
    return program(model, x, integers(WORDS, ROWS, 8, seed=4), None, prompt)


@family("blip2")
def blip2():
    shared = dict(num_layers=2, num_heads=2)
    language_model = hub().BLIP2CustomOPT(
        vocabulary_size=WORDS,
        hidden_dim=4,
        intermediate_dim=8,
        num_query_tokens=2,
        qformer_hidden_dim=4,
        max_sequence_length=10,
        dropout=0.0,
        language_projection=None,
        **shared,
    )
    vision = hub().BLIP2VisionEncoder(
        image_size=32,
        patch_size=4,
        hidden_dim=8,
        intermediate_dim=16,
        use_patch_bias=True,
        use_class_token=True,
        use_mha_bias=True,
        use_mlp_bias=True,
        dropout_rate=0.0,
        layer_norm_epsilon=1e-6,
        initializer_range=0.02,
        **shared,
    )
    queries = hub().BLIP2QFormer(
        num_query_tokens=2,
        hidden_dim=4,
        intermediate_dim=8,
        vision_dim=8,
        cross_attention_frequency=1,
        dropout=0.0,
        layer_norm_epsilon=1e-6,
        **shared,
    )
    backbone = hub().BLIP2Backbone(
        vision_encoder=vision, qformer=queries, language_model=language_model
    )
    return regressed(backbone, {"images": pictures(32), **tokens(WORDS, 5)})


@family("parseq")
def parseq():
    backbone = hub().PARSeqBackbone(
        image_encoder=vit_backbone(
            (32, 128, 3),
            (4, 8),
            num_heads=2,
            hidden_dim=64,
            mlp_dim=256,
            use_class_token=False,
        ),
        vocabulary_size=97,
        max_label_length=25,
        decoder_hidden_dim=64,
        num_decoder_layers=1,
        num_decoder_heads=2,
        decoder_mlp_dim=256,
        dropout_rate=0.0,
        attention_dropout=0.0,
    )
    x = {"images": images(ROWS, 32, 128, 3), **tokens(97, 25)}
    return regressed(backbone, x)


@family("vae")
def vae():
    filters, blocks = [32, 32, 32, 32], [1, 1, 1, 1]
    return regressed(vae_of(filters, blocks), pictures(32))


def vae_of(filters, blocks):
    from keras_hub.src.models.vae import vae_backbone

    return vae_backbone.VAEBackbone(
        filters, blocks, filters, blocks, sampler_method="mode", name="vae"
    )


@family("flux", float32="positions are computed in float32")
def flux():
    model = hub().FluxBackbone(
        input_channels=64,
        hidden_size=64,
        mlp_ratio=2.0,
        num_heads=2,
        depth=2,
        depth_single_blocks=2,
        axes_dim=[8, 12, 12],
        theta=10_000,
        use_bias=True,
        guidance_embed=True,
        image_shape=(16, 64),
        text_shape=(16, 64),
        image_ids_shape=(16, 3),
        text_ids_shape=(16, 3),
        y_shape=(64,),
    )
    x = {
        "image": reals(ROWS, 16, 64),
        "image_ids": integers(16, ROWS, 16, 3).astype("float32"),
        "text": reals(ROWS, 16, 64, seed=1),
        "text_ids": integers(16, ROWS, 16, 3, seed=1).astype("float32"),
        "y": reals(ROWS, 64, seed=2),
        "timesteps": images(ROWS),
        "guidance": images(ROWS, seed=1),
    }
    return regressed(model, x)


@family("stable_diffusion_3", float32="positions are computed in float32")
def stable_diffusion():
    """Only its diffuser: the whole pipeline's steps have no gradients."""
    from keras_hub.src.models.stable_diffusion_3 import mmdit

    model = mmdit.MMDiT(
        patch_size=2,
        hidden_dim=32,
        num_layers=2,
        num_heads=2,
        position_size=192,
        qk_norm=None,
        dual_attention_indices=None,
        latent_shape=(8, 8, 16),
        context_shape=(None, 64),
        pooled_projection_shape=(48,),
    )
    x = {
        "latent": reals(ROWS, 8, 8, 16),
        "context": reals(ROWS, 5, 64),
        "pooled_projection": reals(ROWS, 48),
        "timestep": images(ROWS, 1),
    }
    return regressed(model, x)
