"""Machines and addresses as users write them."""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.job.addresses import (
    Host,
    join_address,
    parse_hosts,
    split_address,
)


def test_hosts_with_counts():
    assert parse_hosts("a:4, b.example.org:2") == (
        Host("a", 4),
        Host("b.example.org", 2),
    )
    assert parse_hosts("[fd00::1]:8") == (Host("fd00::1", 8),)


@pytest.mark.parametrize(
    "text, part",
    [
        ("", "''"),
        ("a", "'a'"),
        ("a:0", "'a:0'"),
        ("a:four", "'a:four'"),
        ("a:4,,b:4", "'' in 'a:4,,b:4'"),
        ("fd00::1:4", "'fd00::1:4'"),
        ("a:4 b:4", "'a:4 b:4'"),
        ("a:4,b:2,a:1", "twice: a"),
        ("a:2,A:2", "twice: a and A"),
        ("a:2,a.:2", "twice: a and a."),
        ("a.b:2,c:1,A.b.:2", "twice: a.b and A.b."),
        ("localhost:2,127.0.0.1:2", "twice: localhost and 127.0.0.1"),
        ("[::1]:2,LOCALHOST.:2", "twice: ::1 and LOCALHOST."),
        ("127.0.0.1:1,ip6-localhost:1", "twice: 127.0.0.1 and ip6-localhost"),
        ("[fd00::1]:2,[FD00:0::1]:2", "twice: fd00::1 and FD00:0::1"),
        ("[::ffff:10.0.0.1]:2,10.0.0.1:2", "::ffff:10.0.0.1 and 10.0.0.1"),
        ("user@a:2", "without a user"),
        ("a:2,b@a:2", "expected 'a'"),
        ("a:2,", "ends with a comma: leave it out. Received: 'a:2,'"),
    ],
)
def test_wrong_hosts(text, part):
    with pytest.raises(InputError) as error:
        parse_hosts(text)
    assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "address, parts",
    [
        ("a:1", ("a", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("[fd00::1]:29500", ("fd00::1", 29500)),
    ],
)
def test_address_and_back(address, parts):
    assert split_address(address) == parts
    assert join_address(*parts) == address


@pytest.mark.parametrize(
    "address", ["a", "a:", ":1", "a:0", "a:65536", "a:b", "::1:5", "a b:1", 7]
)
def test_wrong_address(address):
    with pytest.raises(InputError, match="host:port"):
        split_address(address)
