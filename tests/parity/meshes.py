"""A distribution for any model: every variable is divided along both axes."""

import math

from keras import distribution


class Both(distribution.ModelParallel):
    """Divides the first axis of variables as the rows, and the last as models."""

    def get_variable_layout(self, variable):
        axes = [None] * len(variable.shape)
        if axes:
            axes[0], axes[-1] = "batch", "model"
        return distribution.TensorLayout(axes, self.device_mesh)


def both_divided(shape):
    """A `Both` on the first devices, as many as the mesh of a shape has."""
    devices = distribution.list_devices("cpu")[: math.prod(shape)]
    names = ("batch", "model", "third")[: len(shape)]
    mesh = distribution.DeviceMesh(shape, names, devices)
    layouts = distribution.LayoutMap(mesh)
    layouts[".*"] = ("model",)  # Not asked: the class says where all are.
    return Both(layout_map=layouts, batch_dim_name="batch")
