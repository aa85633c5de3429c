"""The command `python -m kerasmgpu scaling_report`; see the package."""

from kerasmgpu.commands import command_line, scaling_report


def define_flags(flag_values):
    """Defines the flags, and shows the package's help."""
    scaling_report.define_flags(flag_values)
    command_line.show_help_of(scaling_report)


if __name__ == "__main__":
    command_line.start(scaling_report.main, define_flags, ends_children=True)
