"""The user's lines of a call stack, without those of Python and packages."""

import json
import pathlib
import traceback

from kerasmgpu import user_lines

HERE = pathlib.Path(__file__)


def frame(file, number, line):
    return traceback.FrameSummary(str(file), number, "call", line=line)


FRAMES = [
    frame(HERE, 3, "main()"),
    frame(HERE, 7, "model.fit(x, y)"),
    frame(user_lines.__file__, 5, "raise error"),
    frame(json.__file__, 9, "json.loads(text)"),
]


def test_the_innermost_line_of_the_users_is_named():
    named = f"{HERE.name}, line 7: model.fit(x, y)"
    assert user_lines.users_line(FRAMES) == named
    assert user_lines.users_line(FRAMES[2:]) is None
    assert user_lines.users_lines(FRAMES) == [
        f"{HERE.name}, line 3: main()",
        named,
    ]


def test_another_environments_packages_and_what_is_no_file_are_left_out(
    tmp_path,
):
    package = tmp_path / "site-packages" / "theirs.py"
    package.parent.mkdir()
    package.touch()
    frames = [frame(package, 1, "a()"), frame(tmp_path / "<string>", 1, "b()")]
    assert user_lines.users_line(frames) is None
