"""Errors of the user's code in one line, with the user's line."""

import os
import sys

import keras
import tensorflow as tf

from kerasmgpu.commands import user_errors


def raised(function):
    try:
        function()
    except Exception as error:
        return user_errors.in_one_line(error)
    raise AssertionError("nothing was raised")


def fail(text):
    raise ValueError(text)


def test_the_users_line_is_named():
    assert raised(lambda: fail("of\nmine")) == (
        "ValueError: of mine (test_user_errors.py, line 21: raise "
        "ValueError(text))"
    )


def test_both_ends_of_a_long_message_are_told():
    text = raised(lambda: fail("first " + "x" * 2000 + " the cause"))
    assert text.startswith("ValueError: first xxx")
    assert " the cause (test_user_errors.py, line" in text
    assert len(text) < 700


def test_packages_are_not_the_users():
    text = raised(lambda: keras.layers.Dense(-1))
    assert "(test_user_errors.py, line" in text


def test_a_stack_of_a_crash_names_the_users_line():
    stack = f"""Current thread 0x00007f (most recent call first):
  File "{os.__file__}", line 10 in open
  File "{keras.__file__}", line 3 in fit
  File "{__file__}", line 21 in fail
  File "{__file__}", line 11 in raised
  File "{sys.prefix}/lib/runpy.py", line 1 in run
"""
    assert user_errors.place_in_stack(stack) == (
        "test_user_errors.py, line 21: raise ValueError(text)"
    )
    assert user_errors.place_in_stack("Segmentation fault") is None


def test_devices_that_a_program_divides_too_late_are_told_how():
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.list_logical_devices()
    text = raised(
        lambda: tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 77
        )
    )
    assert "use kerasmgpu.strategy(virtual_devices=...)" in text
