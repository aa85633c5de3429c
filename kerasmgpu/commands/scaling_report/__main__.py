"""`python -m kerasmgpu scaling_report`: see the package."""

from absl import flags

from kerasmgpu.commands import command_line, scaling_report

if __name__ == "__main__":
    scaling_report.define_flags(flags.FLAGS)
    command_line.show_help_of(scaling_report)
    command_line.start(scaling_report.main, ends_children=True)
