"""Variables of a model by the layer that owns them."""


def layer_states(model):
    """Pairs of a layer and its own non-trainable variables, nested ones too.

    `Layer.non_trainable_variables` also lists those of sublayers.
    """
    for layer in model._flatten_layers():
        yield layer, layer._non_trainable_variables
