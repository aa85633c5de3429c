"""Mutual authentication of two processes of a job by its token.

A mutual challenge-response at the start of a connection: each end draws a
nonce and sends an HMAC (RFC 2104) of both nonces under a key derived from the
token. The token itself is never sent, responses can't be replayed, and the end
that accepts the connection proves itself first. Later messages are neither
encrypted nor authenticated.

Without a token the key is public. Then the handshake only tells processes of
this version of kerasmgpu from other programs. Imports no TensorFlow.
"""

import hmac
import json
import secrets
import time

from kerasmgpu.job.channel import Channel, Stranger, fields


class WrongToken(ConnectionError):
    """The other end does not know this job's token."""


def derive(token: str, purpose: str) -> bytes:
    """Derives the key for one purpose; the token can't be computed from it.

    An empty token stands for none.
    """
    return hmac.digest(token.encode(), purpose.encode(), "sha256")


def call(channel: Channel, token: str, purpose: str, seconds: float) -> None:
    """Runs the connecting end's part of the handshake.

    Args:
        token: String, see `derive`.
        purpose: String, name of the expected peer. It is sent and part of the
            key: a response for one port is invalid for another.
        seconds: Number, time-out.

    Raises:
        WrongToken: If the peer does not know the token.
        TimeoutError: If the peer does not answer in time.
        ConnectionError: If the connection is closed; a `Stranger`, if the peer
            is another program.
    """
    key = derive(token, purpose)
    ours = secrets.token_hex(16)
    channel.send(to=purpose, nonce=ours)
    theirs, proof = fields(channel.receive_one(seconds), nonce=str, proof=str)
    if not is_same(proof, _proof(key, "accepts", ours, theirs)):
        raise WrongToken("it has another token")
    channel.send(proof=_proof(key, "connects", ours, theirs))


def answer(channel: Channel, token: str, purpose: str, seconds: float) -> None:
    """Runs the accepting end's part of the handshake; see `call`."""
    end = time.monotonic() + seconds
    key = derive(token, purpose)
    wanted, theirs = fields(channel.receive_one(seconds), to=str, nonce=str)
    if wanted != purpose:
        channel.send(here=purpose)  # Makes `call` raise `Stranger`.
        raise Stranger(f"it wanted {wanted[:80]!r}")
    ours = secrets.token_hex(16)
    channel.send(nonce=ours, proof=_proof(key, "accepts", theirs, ours))
    left = max(end - time.monotonic(), 0.0)
    (proof,) = fields(channel.receive_one(left), proof=str)
    if not is_same(proof, _proof(key, "connects", theirs, ours)):
        raise Stranger("it has another token")


def is_same(one: object, other: str) -> bool:
    """Whether two texts are equal, compared in constant time."""
    return isinstance(one, str) and hmac.compare_digest(
        one.encode(), other.encode()
    )


def _proof(
    key: bytes, role: str, nonce_of_caller: str, nonce_of_other: str
) -> str:
    text = json.dumps([role, nonce_of_caller, nonce_of_other])
    return hmac.new(key, text.encode(), "sha256").hexdigest()
