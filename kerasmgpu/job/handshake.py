"""Two processes of a job prove to each other that they know its token. Pure.

A challenge and response both ways, before anything else is said over a
connection: each end draws a nonce, and each sends an HMAC (RFC 2104) of both
nonces under a key that is derived from the token. The token itself is never
sent, an answer can't be used a second time, and the end that accepts the
connection proves itself first. What follows over the connection is neither
encrypted nor authenticated.

Without a token the key is one that everybody knows. Then the handshake tells
processes of this version of kerasmgpu from other programs, and no more.
"""

import hmac
import json
import secrets
import time

from kerasmgpu.job.channel import Stranger, fields


class WrongToken(ConnectionError):
    """The other end does not know this job's token."""


def derive(token, purpose):
    """The key for one purpose, from which the token can't be found.

    Args:
        token: String, empty where there is none.
        purpose: String.

    Returns:
        Bytes.
    """
    return hmac.digest(token.encode(), purpose.encode(), "sha256")


def call(channel, token, purpose, seconds):
    """The part of the end that connects.

    Args:
        channel: `channel.Channel`.
        token: String, see `derive`.
        purpose: String, whom it expects at the other end. It is sent, and the
            key is of it: an answer for one port is none for another.
        seconds: Number, how long to wait for the other end.

    Raises:
        WrongToken: If the other end does not know the token.
        TimeoutError: If it does not answer in time.
        ConnectionError: If it is gone; a `Stranger`, if it is somebody else.
    """
    key = derive(token, purpose)
    ours = secrets.token_hex(16)
    channel.send(to=purpose, nonce=ours)
    theirs, proof = fields(channel.receive_one(seconds), nonce=str, proof=str)
    if not is_same(proof, _proof(key, "accepts", ours, theirs)):
        raise WrongToken("it has another token")
    channel.send(proof=_proof(key, "connects", ours, theirs))


def answer(channel, token, purpose, seconds):
    """The part of the end that accepts the connection; see `call`."""
    end = time.monotonic() + seconds
    key = derive(token, purpose)
    wanted, theirs = fields(channel.receive_one(seconds), to=str, nonce=str)
    if wanted != purpose:
        channel.send(here=purpose)  # No answer, so that the caller knows.
        raise Stranger(f"it wanted {wanted[:80]!r}")
    ours = secrets.token_hex(16)
    channel.send(nonce=ours, proof=_proof(key, "accepts", theirs, ours))
    left = max(end - time.monotonic(), 0.0)
    (proof,) = fields(channel.receive_one(left), proof=str)
    if not is_same(proof, _proof(key, "connects", theirs, ours)):
        raise Stranger("it has another token")


def is_same(one, other):
    """Whether both are the same text; the time does not tell how much is.

    Args:
        one: What somebody sent, of any type.
        other: String.
    """
    return isinstance(one, str) and hmac.compare_digest(
        one.encode(), other.encode()
    )


def _proof(key, role, nonce_of_caller, nonce_of_other):
    text = json.dumps([role, nonce_of_caller, nonce_of_other])
    return hmac.new(key, text.encode(), "sha256").hexdigest()
