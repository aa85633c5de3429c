"""Notices of clouds, imitated by a server; what ends a `fit` that saves."""

import http.server
import json
import threading

import keras
import numpy as np
import pytest

from kerasmgpu.callbacks import Checkpoint
from kerasmgpu.callbacks.checkpoints import notices
from kerasmgpu.errors import InputError
from kerasmgpu.job.exit_status import EXIT_PREEMPTED

OF_GOOGLE = "/computeMetadata/v1/instance"
TOKEN = ("PUT", "/latest/api/token")
ACTION = ("GET", "/latest/meta-data/spot/instance-action")
EVENTS = ("GET", "/metadata/scheduledevents?api-version=2020-07-01")

QUIET = {
    "google": {
        ("GET", f"{OF_GOOGLE}/preempted"): "FALSE",
        (
            "GET",
            f"{OF_GOOGLE}/maintenance-event",
        ): "MIGRATE_ON_HOST_MAINTENANCE",
    },
    "aws": {TOKEN: "token"},
    "azure": {EVENTS: json.dumps({"Events": [{"EventType": "Freeze"}]})},
}
EVENT = {"EventType": "Preempt", "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"}
GIVEN = [
    (
        "google",
        {("GET", f"{OF_GOOGLE}/preempted"): "TRUE"},
        "the instance is preempted",
    ),
    (
        "google",
        {
            (
                "GET",
                f"{OF_GOOGLE}/maintenance-event",
            ): "TERMINATE_ON_HOST_MAINTENANCE"
        },
        "TERMINATE_ON_HOST_MAINTENANCE",
    ),
    (
        "aws",
        {ACTION: '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'},
        "the instance will terminate at 2017-09-18T08:22:00Z",
    ),
    (
        "azure",
        {EVENTS: json.dumps({"Events": [EVENT]})},
        "Preempt, not before Mon, 19 Sep 2016 18:29:47 GMT",
    ),
]
NEEDED = {
    "google": ("Metadata-Flavor", "Google"),
    "aws": ("X-aws-ec2-metadata-token", "token"),
    "azure": ("Metadata", "true"),
}


@pytest.fixture
def metadata(monkeypatch):
    """Answers of a metadata server by method and path, which may change."""
    answers, needed = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            method = self.command
            answer = answers.get((method, self.path))
            if method == "GET" and needed:
                name, value = needed[0]
                if self.headers.get(name) != value:
                    self.send_error(403)
                    return
            if answer is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.encode())

        do_PUT = do_GET

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for cloud in notices.ADDRESSES:
        monkeypatch.setitem(notices.ADDRESSES, cloud, address)
    monkeypatch.setattr(notices, "SECONDS", 0.02)

    def of(cloud):
        answers.update(QUIET[cloud])
        needed.append(NEEDED[cloud])
        return answers

    yield of
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("cloud, change, said", GIVEN)
def test_clouds_give_notice(metadata, cloud, change, said):
    answers = metadata(cloud)
    notice = notices.Notice(cloud)
    notice.start()
    assert notice.said is None
    answers.update(change)
    for _ in range(200):
        if notice.said:
            break
        threading.Event().wait(0.02)
    notice.stop()
    assert notice.said == said


@pytest.mark.parametrize("cloud", QUIET)
def test_another_machine_has_no_such_server(metadata, cloud):
    answers = metadata(cloud)
    answers.clear()
    with pytest.raises(
        InputError, match=f"notice='{cloud}' asks the machine's"
    ):
        notices.Notice(cloud).start()


def test_a_failed_look_is_repeated_and_said_once(metadata, caplog):
    answers = iter([None, 1, 2, "soon"])

    def look():
        answer = next(answers)
        if isinstance(answer, int):
            raise RuntimeError(f"failure {answer}")
        return answer

    metadata("google")
    notice = notices.Notice(look)
    notice.start()
    for _ in range(200):
        if notice.said:
            break
        threading.Event().wait(0.02)
    assert notice.said == "soon"
    assert "failure 1" in caplog.text and "failure 2" not in caplog.text


def test_a_file_from_before_is_refused(tmp_path):
    (tmp_path / "notice").touch()
    notice = notices.Notice(tmp_path / "notice")
    with pytest.raises(InputError, match="delete it"):
        notice.start()


def test_what_gives_no_notice_is_refused():
    with pytest.raises(InputError, match="notice"):
        Checkpoint("unused", notice=3)


def test_a_fit_saves_ends_and_goes_on(tmp_path, metadata, caplog):
    answers = metadata("google")
    steps = []

    class Taken(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            steps.append(batch)
            if len(steps) == 3:
                answers["GET", f"{OF_GOOGLE}/preempted"] = "TRUE"
                threading.Event().wait(0.5)

    def train(name, **settings):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        x = np.arange(32.0).reshape(16, 2) / 32
        saved = Checkpoint(tmp_path / name, **settings)
        model.fit(
            *(x, x[:, :1]),
            batch_size=2,
            epochs=2,
            verbose=0,
            callbacks=[Taken(), saved],
        )
        return model.get_weights()

    with pytest.raises(SystemExit) as ended:
        train("run", notice="google")
    assert ended.value.code == EXIT_PREEMPTED
    assert "ended by a notice (the instance is preempted)" in caplog.text
    assert len(steps) == 3
    resumed = train("run")
    assert len(steps) == 16
    for one, other in zip(resumed, train("whole"), strict=True):
        np.testing.assert_array_equal(one, other)
