"""Shared parts of commands: start, child processes and their endings, plots.

Also the user's model and data, and the commands that read results, such as
`scaling_report`.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
