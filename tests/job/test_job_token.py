"""The token of a run: in a file of the user's, gone once the workers met."""

import os
import pathlib
import stat

import pytest
from absl import logging

from kerasmgpu.errors import InputError
from kerasmgpu.job import job_token


@pytest.fixture
def environ(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return {
        "KERASMGPU_JOB_TOKEN_FILE": job_token.write("drawn"),
        "KERASMGPU_JOB_TOKEN": "the user's",
    }


def test_without_a_launcher_it_is_the_users():
    assert job_token.read({}) == ""
    assert job_token.read({"KERASMGPU_JOB_TOKEN": "secret"}) == "secret"
    job_token.discard({"KERASMGPU_JOB_TOKEN": "secret"})


def test_the_launchers_is_in_a_file_that_no_other_user_reads(environ):
    path = pathlib.Path(environ["KERASMGPU_JOB_TOKEN_FILE"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert job_token.read(environ) == job_token.read(environ) == "drawn"
    assert "drawn" not in environ.values()


def test_it_is_gone_once_the_workers_have_met(environ, caplog):
    job_token.discard(environ)
    assert not os.path.exists(environ["KERASMGPU_JOB_TOKEN_FILE"])
    job_token.discard(environ)
    with caplog.at_level(logging.WARNING, "absl"):
        assert job_token.read(environ) == ""
    assert "an earlier process of this worker has used" in caplog.text


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(InputError, match="KERASMGPU_JOB_TOKEN_FILE.*the user"):
        job_token.read({"KERASMGPU_JOB_TOKEN_FILE": str(tmp_path)})
