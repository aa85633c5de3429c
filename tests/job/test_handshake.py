"""Both ends of a connection prove that they know the token, and tell nothing."""

import contextlib
import hashlib
import hmac
import json
import socket
import threading

import pytest

from kerasmgpu.job import handshake
from kerasmgpu.job.channel import Channel, Stranger


@contextlib.contextmanager
def accepting(token, purpose, seconds=5):
    """The socket of a caller, and what the other end raised in the end."""
    ours, theirs = socket.socketpair()
    raised = []

    def accept():
        with theirs:
            try:
                handshake.answer(Channel(theirs), token, purpose, seconds)
            except OSError as error:
                raised.append(error)

    thread = threading.Thread(target=accept)
    thread.start()
    with ours:
        yield ours, raised
    thread.join(10)


@pytest.mark.parametrize("token", ["", "a token", "é"])
def test_both_ends_go_on_with_the_same_token(token):
    with accepting(token, "port") as (link, raised):
        handshake.call(Channel(link), token, "port", 5)
    assert raised == []


@pytest.mark.parametrize("ours, theirs", [("a", "b"), ("", "a"), ("a", "")])
def test_another_token_is_noticed_by_both(ours, theirs):
    with accepting(theirs, "port") as (link, raised):
        with pytest.raises(handshake.WrongToken):
            handshake.call(Channel(link), ours, "port", 5)
        link.shutdown(socket.SHUT_RDWR)
    assert len(raised) == 1  # The caller has not proved itself.


def test_somebody_else_is_no_wrong_token():
    with accepting("a", "worker 1") as (link, raised):
        with pytest.raises(Stranger):
            handshake.call(Channel(link), "a", "worker 0", 5)
    assert isinstance(raised[0], Stranger)


def test_the_proof_is_an_hmac_of_both_nonces():
    with accepting("the token", "port") as (link, raised):
        link.sendall(b'{"to": "port", "nonce": "mine"}\n')
        told = Channel(link).receive_one(5)
        key = hmac.new(b"the token", b"port", hashlib.sha256).digest()
        proofs = [
            hmac.new(
                key,
                json.dumps([role, "mine", told["nonce"]]).encode(),
                hashlib.sha256,
            ).hexdigest()
            for role in ("accepts", "connects")
        ]
        assert told["proof"] == proofs[0]
        Channel(link).send(proof=proofs[1])
    assert raised == []


@pytest.mark.parametrize("what", ["its own", "an earlier one", None, 1])
def test_no_other_proof_lets_a_caller_in(what):
    proof = what
    if what == "an earlier one":
        with accepting("a", "port") as (link, _):
            recorder = _Recorder(link)
            handshake.call(recorder, "a", "port", 5)
            proof = recorder.sent[-1]["proof"]
    with accepting("a", "port") as (link, raised):
        link.sendall(b'{"to": "port", "nonce": "mine"}\n')
        told = Channel(link).receive_one(5)
        Channel(link).send(proof=told["proof"] if what == "its own" else proof)
    assert isinstance(raised[0], Stranger)


class _Recorder(Channel):
    def __init__(self, connection):
        super().__init__(connection)
        self.sent = []

    def send(self, **message):
        self.sent.append(message)
        super().send(**message)


def test_who_says_nothing_is_waited_for_no_longer():
    with accepting("a", "port", 0.2) as (_, raised):
        pass
    assert isinstance(raised[0], (TimeoutError, ConnectionError))
