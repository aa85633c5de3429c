"""Models that find masks, boxes and depths in pictures."""

import keras

from benchmarks.exactness.data import generator, integers, reals
from benchmarks.exactness.keras_hub.programs import (
    ROWS,
    class_loss,
    hub,
    optimizer,
    pictures,
    program,
    regressed,
)
from benchmarks.exactness.keras_hub.vision import (
    dinov2_backbone,
    hgnetv2_backbone,
    mit_backbone,
    resnet_backbone,
    vit_det_backbone,
)
from benchmarks.exactness.registry import family


@family("deeplab_v3")
def deeplab():
    backbone = hub().DeepLabV3Backbone(
        image_encoder=resnet_backbone((64, 64, 64), "basic_block"),
        low_level_feature_key="P2",
        spatial_pyramid_pooling_key="P4",
        dilation_rates=[6, 12, 18],
        upsampling_size=4,
    )
    model = hub().DeepLabV3ImageSegmenter(backbone, 2, preprocessor=None)
    model.compile(optimizer(), class_loss(), metrics=["accuracy"])
    return program(model, pictures(32), integers(2, ROWS, 32, 32))


@family("segformer")
def segformer():
    backbone = hub().SegFormerBackbone(
        image_encoder=mit_backbone(), projection_filters=32
    )
    model = hub().SegFormerImageSegmenter(backbone, 4, preprocessor=None)
    model.compile(optimizer(), class_loss(), metrics=["accuracy"])
    sides = model.output.shape[1:3]
    return program(model, pictures(32), integers(4, ROWS, *sides))


@family("sam")
def sam():
    import keras_hub

    encoder = vit_det_backbone(
        128,
        patch_size=16,
        hidden_size=16,
        num_layers=3,
        intermediate_dim=64,
        num_heads=16,
        num_output_channels=32,
    )
    prompts = keras_hub.layers.SAMPromptEncoder(
        hidden_size=32,
        image_embedding_size=(8, 8),
        input_image_size=(128, 128),
        mask_in_channels=16,
    )
    decoder = keras_hub.layers.SAMMaskDecoder(
        num_layers=2,
        hidden_size=32,
        intermediate_dim=32,
        num_heads=8,
        embedding_dim=32,
        num_multimask_outputs=3,
        iou_head_depth=3,
        iou_head_hidden_dim=8,
    )
    model = hub().SAMBackbone(
        image_encoder=encoder, prompt_encoder=prompts, mask_decoder=decoder
    )
    x = {
        "images": pictures(128),
        "points": 128 * reals(ROWS, 1, 2) ** 2 % 128,
        "labels": integers(2, ROWS, 1).astype("float32"),
        "boxes": 128 * reals(ROWS, 1, 2, 2, seed=1) ** 2 % 128,
        "masks": reals(ROWS, 1, 32, 32, 1),
    }
    return regressed(model, x)


def boxes(size, count=2, seed=0):
    """Corners of boxes within a picture: `[ROWS, count, 4]`, y before x."""
    random = generator(seed)
    least = random.uniform(0, 0.5 * size, size=(ROWS, count, 2))
    extent = random.uniform(0.1 * size, 0.5 * size, size=(ROWS, count, 2))
    corners = [least, least + extent]
    found = reals(ROWS, count, 4)
    found[..., :2], found[..., 2:] = corners
    return found


@family("retinanet", float32="labels and their weights are float32")
def retinanet():
    import keras_hub

    backbone = hub().RetinaNetBackbone(
        image_encoder=resnet_backbone(),
        min_level=3,
        max_level=4,
        use_p5=False,
    )
    anchors = keras_hub.layers.AnchorGenerator(
        bounding_box_format="yxyx",
        min_level=3,
        max_level=4,
        num_scales=3,
        aspect_ratios=[0.5, 1.0, 2.0],
        anchor_size=4,
    )

    class Detector(hub().RetinaNetObjectDetector):
        """Converts boxes of a copy: Keras 3.15's conversion changes its
        argument, which TensorFlow refuses of a step's, on one device, too."""

        def compute_loss(self, x, y, *args, **kwargs):
            return super().compute_loss(x, dict(y), *args, **kwargs)

    model = Detector(
        backbone=backbone,
        anchor_generator=anchors,
        num_classes=10,
        bounding_box_format="yxyx",
        preprocessor=None,
    )
    # Losses of untrained anchors are large.
    small = keras.optimizers.SGD(1e-5, momentum=0.9)
    model.compile(small, box_loss="auto", classification_loss="auto")
    y = {"boxes": boxes(64), "labels": integers(10, ROWS, 2)}
    return program(model, pictures(64), y)


@family("d_fine", float32="it takes nothing but float32", precision="float32")
def d_fine():
    backbone = hub().DFineBackbone(
        backbone=hgnetv2_backbone(),
        decoder_in_channels=[16, 16],
        encoder_hidden_dim=16,
        num_denoising=10,
        num_labels=4,
        hidden_dim=16,
        learn_initial_query=False,
        num_queries=10,
        anchor_image_size=(32, 32),
        feat_strides=[4, 8],
        num_feature_levels=2,
        encoder_in_channels=[16, 32],
        encode_proj_layers=[1],
        num_attention_heads=2,
        encoder_ffn_dim=32,
        num_encoder_layers=1,
        hidden_expansion=0.5,
        depth_multiplier=0.5,
        eval_idx=-1,
        num_decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=32,
        decoder_n_points=[2, 2],
        lqe_hidden_dim=16,
        num_lqe_layers=1,
        out_features=["stage1", "stage2"],
        image_shape=(32, 32, 3),
        seed=0,
    )
    model = hub().DFineObjectDetector(
        backbone, 4, bounding_box_format="yxyx", preprocessor=None
    )
    model.compile(optimizer())
    y = {"boxes": boxes(32), "labels": integers(4, ROWS, 2).astype("int64")}
    return program(model, pictures(32), y)


@family("depth_anything")
def depth_anything():
    encoder = dinov2_backbone(126, 4, apply_layernorm=True)
    backbone = hub().DepthAnythingBackbone(
        image_encoder=encoder,
        reassemble_factors=[4, 2, 1, 0.5],
        neck_hidden_dims=[8, 16, 16, 32],
        fusion_hidden_dim=32,
        head_hidden_dim=16,
        head_in_index=-1,
        feature_keys=["stage1", "stage2", "stage3", "stage4"],
    )
    model = hub().DepthAnythingDepthEstimator(
        backbone, "metric", max_depth=10.0, preprocessor=None
    )
    model.compile(optimizer(), {"depths": "mse"})
    return program(model, pictures(126), {"depths": pictures(126, channels=1)})
