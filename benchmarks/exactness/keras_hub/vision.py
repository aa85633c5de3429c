"""Models that look at pictures or films: classes and features."""

from benchmarks.exactness.data import reals
from benchmarks.exactness.keras_hub.programs import (
    ROWS,
    classified,
    hub,
    pictures,
    regressed,
)
from benchmarks.exactness.registry import family


def resnet_backbone(
    filters=(64, 64, 64), block_type="bottleneck_block", **more
):
    settings = dict(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=list(filters),
        stackwise_num_blocks=[1] * len(filters),
        stackwise_num_strides=[1] + [2] * (len(filters) - 1),
        block_type=block_type,
        use_pre_activation=False,
    )
    return hub().ResNetBackbone(**{**settings, **more})


@family("resnet")
def resnet():
    backbone = resnet_backbone(image_shape=(16, 16, 3))
    return classified(backbone, hub().ResNetImageClassifier, pictures(16))


@family("cspnet")
def cspnet():
    backbone = hub().CSPNetBackbone(
        stem_filters=32,
        stem_kernel_size=3,
        stem_strides=1,
        stackwise_strides=2,
        stackwise_depth=[1, 2, 4],
        stackwise_num_filters=[16, 24, 48],
        image_shape=(16, 16, 3),
        down_growth=True,
        bottle_ratio=(0.5, 1.0),
        block_ratio=(1.0, 0.5),
        expand_ratio=(2.0, 1.0),
        block_type="dark_block",
        stage_type="csp",
        stem_padding="same",
    )
    return classified(backbone, hub().CSPNetImageClassifier, pictures(16))


@family("deit")
def deit():
    backbone = hub().DeiTBackbone(
        image_shape=(28, 28, 3),
        patch_size=4,
        num_layers=3,
        hidden_dim=48,
        num_heads=6,
        intermediate_dim=192,
        use_mha_bias=True,
    )
    return classified(backbone, hub().DeiTImageClassifier, pictures(28))


@family("densenet")
def densenet():
    backbone = hub().DenseNetBackbone(
        stackwise_num_repeats=[2, 4, 6, 4],
        compression_ratio=0.5,
        growth_rate=2,
        image_shape=(32, 32, 3),
    )
    return classified(backbone, hub().DenseNetImageClassifier, pictures(32))


@family("efficientnet")
def efficientnet():
    backbone = hub().EfficientNetBackbone(
        stackwise_kernel_sizes=[3] * 4,
        stackwise_num_repeats=[1, 2, 2, 2],
        stackwise_input_filters=[24, 24, 48, 64],
        stackwise_output_filters=[24, 48, 64, 128],
        stackwise_expansion_ratios=[1, 4, 4, 6],
        stackwise_squeeze_and_excite_ratios=[0.0, 0.0, 0.25, 0.25],
        stackwise_strides=[1, 2, 2, 1],
        stackwise_block_types=["fused"] * 2 + ["unfused"] * 2,
        stackwise_force_input_filters=[0] * 4,
        stackwise_nores_option=[False] * 4,
        width_coefficient=1.0,
        depth_coefficient=1.0,
        image_shape=(32, 32, 3),
    )
    return classified(backbone, hub().EfficientNetImageClassifier, pictures(32))


def hgnetv2_backbone(**more):
    settings = dict(
        stem_channels=[3, 8, 8],
        stackwise_stage_filters=[[8, 8, 16, 1, 1, 3], [16, 8, 32, 1, 1, 3]],
        apply_downsample=[False, True],
        use_lightweight_conv_block=[False, False],
        depths=[1, 1],
        hidden_sizes=[16, 32],
        embedding_size=8,
        use_learnable_affine_block=True,
        hidden_act="relu",
        image_shape=(32, 32, 3),
        out_features=["stage1", "stage2"],
    )
    return hub().HGNetV2Backbone(**{**settings, **more})


@family("hgnetv2")
def hgnetv2():
    backbone = hgnetv2_backbone(out_features=["stem", "stage1", "stage2"])
    return classified(
        backbone, hub().HGNetV2ImageClassifier, pictures(32), head_filters=16
    )


def mit_backbone():
    return hub().MiTBackbone(
        layerwise_depths=[2, 2],
        image_shape=(32, 32, 3),
        hidden_dims=[4, 8],
        num_layers=2,
        layerwise_num_heads=[1, 2],
        layerwise_sr_ratios=[8, 4],
        max_drop_path_rate=0.1,
        layerwise_patch_sizes=[7, 3],
        layerwise_strides=[4, 2],
    )


@family("mit")
def mit():
    return classified(mit_backbone(), hub().MiTImageClassifier, pictures(32))


@family("mobilenet")
def mobilenet():
    backbone = hub().MobileNetBackbone(
        stackwise_expansion=[[40, 56], [64, 144]],
        stackwise_num_blocks=[2, 2],
        stackwise_num_filters=[[16, 16], [24, 24]],
        stackwise_kernel_size=[[3, 3], [5, 5]],
        stackwise_num_strides=[[2, 1], [2, 1]],
        stackwise_se_ratio=[[None, None], [0.25, 0.25]],
        stackwise_activation=[["relu"] * 2, ["hard_swish"] * 2, ["hard_swish"]],
        stackwise_padding=[[1, 1], [2, 2]],
        output_num_filters=64,
        input_activation="hard_swish",
        output_activation="hard_swish",
        input_num_filters=16,
        image_shape=(32, 32, 3),
        depthwise_filters=8,
        depthwise_stride=2,
        depthwise_residual=False,
        squeeze_and_excite=0.5,
        last_layer_filter=48,
    )
    return classified(backbone, hub().MobileNetImageClassifier, pictures(32))


@family("mobilenetv5")
def mobilenetv5():
    backbone = hub().MobileNetV5Backbone(
        stackwise_block_types=[["er"], ["uir", "uir"]],
        stackwise_num_blocks=[1, 2],
        stackwise_num_filters=[[24], [48, 48]],
        stackwise_strides=[[2], [2, 1]],
        stackwise_act_layers=[["relu"], ["relu", "relu"]],
        stackwise_exp_ratios=[[4.0], [6.0, 6.0]],
        stackwise_se_ratios=[[0.0], [0.0, 0.0]],
        stackwise_dw_kernel_sizes=[[0], [5, 5]],
        stackwise_dw_start_kernel_sizes=[[0], [0, 0]],
        stackwise_dw_end_kernel_sizes=[[0], [0, 0]],
        stackwise_exp_kernel_sizes=[[3], [0, 0]],
        stackwise_pw_kernel_sizes=[[1], [0, 0]],
        stackwise_num_heads=[[0], [0, 0]],
        stackwise_key_dims=[[0], [0, 0]],
        stackwise_value_dims=[[0], [0, 0]],
        stackwise_kv_strides=[[0], [0, 0]],
        stackwise_use_cpe=[[False], [False, False]],
        image_shape=(32, 32, 3),
        stem_size=16,
        use_msfa=False,
    )
    return classified(backbone, hub().MobileNetV5ImageClassifier, pictures(32))


@family("vgg")
def vgg():
    backbone = hub().VGGBackbone(
        stackwise_num_repeats=[2, 4, 4],
        stackwise_num_filters=[2, 16, 16],
        image_shape=(8, 8, 3),
    )
    return classified(
        backbone,
        hub().VGGImageClassifier,
        pictures(8),
        pooling="flatten",
        pooling_hidden_dim=16,
    )


def vit_backbone(shape, patch, **more):
    settings = dict(num_layers=2, hidden_dim=48, num_heads=6, mlp_dim=192)
    return hub().ViTBackbone(
        image_shape=shape, patch_size=patch, **{**settings, **more}
    )


@family("vit")
def vit():
    backbone = vit_backbone((28, 28, 3), (4, 4), use_mha_bias=True)
    return classified(backbone, hub().ViTImageClassifier, pictures(28))


@family("xception")
def xception():
    backbone = hub().XceptionBackbone(
        stackwise_conv_filters=[[32, 64], [128, 128], [256, 256]],
        stackwise_pooling=[False, True, False],
        image_shape=(32, 32, 3),
    )
    return classified(backbone, hub().XceptionImageClassifier, pictures(32))


@family("swin_transformer")
def swin():
    backbone = hub().SwinTransformerBackbone(
        image_shape=(32, 32, 3),
        embed_dim=32,
        depths=(2, 2),
        num_heads=(2, 4),
        window_size=4,
    )
    return classified(
        backbone, hub().SwinTransformerImageClassifier, pictures(32)
    )


def dinov2_backbone(side, num_layers, **more):
    return hub().DINOV2Backbone(
        patch_size=14,
        num_layers=num_layers,
        hidden_dim=16,
        num_heads=2,
        intermediate_dim=64,
        layer_scale_init_value=1.0,
        num_register_tokens=0,
        use_swiglu_ffn=False,
        image_shape=(side, side, 3),
        **more,
    )


@family("dinov2")
def dinov2():
    return regressed(dinov2_backbone(70, 2), {"images": pictures(70)})


@family("dinov3", float32="positions are computed in float32")
def dinov3():
    backbone = hub().DINOV3Backbone(
        patch_size=16,
        num_layers=2,
        hidden_dim=16,
        num_heads=2,
        intermediate_dim=64,
        layer_scale_init_value=1.0,
        num_register_tokens=4,
        use_gated_mlp=False,
        image_shape=(64, 64, 3),
    )
    return regressed(backbone, {"pixel_values": pictures(64)})


def vit_det_backbone(side, **more):
    settings = dict(
        patch_size=2,
        hidden_size=4,
        num_layers=2,
        global_attention_layer_indices=[2, 5, 8, 11],
        intermediate_dim=16,
        num_heads=2,
        num_output_channels=2,
        window_size=2,
    )
    return hub().ViTDetBackbone(
        image_shape=(side, side, 3), **{**settings, **more}
    )


@family("vit_det")
def vit_det():
    return regressed(vit_det_backbone(16), pictures(16))


@family("video_prism")
def video_prism():
    backbone = hub().VideoPrismBackbone(
        image_shape=(28, 28, 3),
        num_frames=4,
        patch_size=4,
        hidden_dim=16,
        intermediate_dim=32,
        num_heads=2,
        num_spatial_layers=1,
        num_temporal_layers=1,
        num_auxiliary_layers=1,
        vocabulary_size=0,
        num_text_layers=0,
    )
    return regressed(backbone, reals(ROWS, 4, 28, 28, 3))
