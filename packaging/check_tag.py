"""Status 1 unless a tag, the package, CITATION.cff and CHANGELOG.md agree.

python packaging/check_tag.py v0.3.0
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]

WHERE = {
    "kerasmgpu/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "CHANGELOG.md": r"^## (\S+) \(\d{4}-\d\d-\d\d\)$",
}
"""Files that have the version, and how; the newest one comes first."""


def found(root: pathlib.Path = ROOT) -> dict[str, str | None]:
    """Returns the version in each file; `None` where there is none."""
    versions = {}
    for name, pattern in WHERE.items():
        match = re.search(pattern, (root / name).read_text("utf-8"), re.M)
        versions[name] = match and match[1]
    return versions


def main(tag: str) -> int:
    """Prints the files whose version isn't the tag's; returns the status."""
    wrong = {
        name: version
        for name, version in found().items()
        if f"v{version}" != tag
    }
    for name, version in wrong.items():
        print(f"The tag is {tag}; {name} has version {version}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
