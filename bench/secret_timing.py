"""Asks whether the time of a refusal tells a peer what was wrong.

A process refuses what it is shown, and another one takes the time from question to answer, each by
a TCP connection of its own on this machine; a node's deliberate delay is left out. Inputs of two
kinds come in random order, and their times are compared by Welch's t, as in dudect: below 4.5 so
many measurements tell nothing apart. It is run by hand, on a machine that does nothing else. That
the same steps are taken, tests say without a clock.
"""

import argparse
import base64
import gc
import itertools
import os
import random
import secrets
import socket
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from poe.broker.access.authentication import Authentication, Channel
from poe.broker.access.secrets import Secrets
from poe.errors import AuthenticationFailed
from poe.security.entry import BEARER
from poe.security.scram import SCRAM, ScramKeys
from poe.security.token import make_token
from poe.security.users import TokenEntry, User, Users

COUNT = 10_000
T_MAX = 4.5
KEPT = 0.9
"""Part of the measurements that counts: what takes longer was interrupted."""

INPUTS = 10
"""Of each kind: one alone may be slower for where it lies in memory. With 200 in turns, whoever is
there takes 0.3 µs more, for no record of a user stays in the processor's nearest cache."""

MESSAGE_BYTES_MAX = 4096

KEYS = ScramKeys.of_password("pencil")
TOKENS = [make_token(f"token{number}") for number in range(INPUTS)]
NAMES = [f"user{number}" for number in range(1000, 1000 + INPUTS)]


@dataclass
class Node:
    """What a node knows."""

    users: Users
    secrets: Secrets


NODE = Node(
    Users(
        User(name=name, scram=(KEYS,), tokens=(TokenEntry(f"token{number}", digest),))
        for number, (name, (_, digest)) in enumerate(zip(NAMES, TOKENS, strict=True))
    ),
    Secrets(secrets.token_bytes(32), make_token("admin")[1]),
)
CHANNEL = Channel("127.0.0.1", is_local=True)


class Case(NamedTuple):
    """Inputs of two kinds, which one operation is not to tell apart."""

    run: Callable[[bytes], object]
    first: list[bytes]
    second: list[bytes]


def show_password(client_first: bytes) -> None:
    """Log in with a password that is wrong."""
    authentication = Authentication(NODE, CHANNEL)
    told = authentication.take(SCRAM, client_first, 0.0).data
    assert told is not None
    final = b"c=biws,%b,p=%b" % (told.partition(b",")[0], base64.b64encode(bytes(32)))
    with suppress(AuthenticationFailed):
        authentication.take(SCRAM, final, 0.0)
        sys.exit("a wrong password was let in")


def show_token(token: bytes) -> None:
    """Log in with a token that is wrong."""
    with suppress(AuthenticationFailed):
        Authentication(NODE, CHANNEL).take(BEARER, token, 0.0)
        sys.exit("a wrong token was let in")


def client_first(name: str) -> bytes:
    """The first message of a user."""
    return b"n,,n=%b,r=client" % name.encode()


def nobodies() -> Iterator[bytes]:
    """First messages of who is not there, with answers of the same size: that everybody sees."""
    for number in itertools.count(2000):
        message = client_first(f"user{number}")
        if b",i=4096," in (Authentication(NODE, CHANNEL).take(SCRAM, message, 0.0).data or b""):
            yield message


def wrong_tokens(place: int) -> list[bytes]:
    """Whole tokens that differ in one character from those of the users."""
    heads = [bytearray(text.rpartition("_")[0].encode()) for text, _ in TOKENS]
    for head in heads:
        head[place] = ord("A" if head[place] != ord("A") else "B")
    return [b"%b_%08x" % (bytes(head), zlib.crc32(head)) for head in heads]


FIRSTS = [client_first(name) for name in NAMES]
CASES = {
    "the same, twice": Case(show_password, FIRSTS, FIRSTS),
    "a user that there is, and one that there is not": Case(
        show_password, FIRSTS, list(itertools.islice(nobodies(), INPUTS))
    ),
    "a token wrong at its begin, and at its end": Case(
        show_token, wrong_tokens(-43), wrong_tokens(-1)
    ),
    "a token that there is, and one that there is not": Case(
        show_token, wrong_tokens(-1), wrong_tokens(len("poe_"))
    ),
}


def serve(listener: socket.socket, case: Case) -> NoReturn:
    """Refuse one message a connection, until one comes without."""
    while True:
        peer, _ = listener.accept()
        with peer:
            message = peer.recv(MESSAGE_BYTES_MAX)
            if not message:
                os._exit(0)
            case.run(message)
            peer.send(b".")


def measured(case: Case, count: int) -> tuple[list[int], list[int]]:
    """The nanoseconds of `count` answers of each kind, without those that were interrupted."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if not child:
        serve(listener, case)
    address = listener.getsockname()
    listener.close()
    kinds = [0, 1] * count
    random.shuffle(kinds)
    times: tuple[list[int], list[int]] = ([], [])
    for kind in kinds:
        message = random.choice((case.first, case.second)[kind])
        with socket.create_connection(address) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            begun_ns = time.perf_counter_ns()
            peer.send(message)
            peer.recv(1)
            times[kind].append(time.perf_counter_ns() - begun_ns)
    socket.create_connection(address).close()
    os.waitpid(child, 0)
    limit = sorted(times[0] + times[1])[int(2 * count * KEPT)]
    first, second = ([each for each in side if each < limit] for side in times)
    return first, second


def welch_t(first: list[int], second: list[int]) -> float:
    """How far two means are apart, in units of what chance does."""
    spread = sum(statistics.variance(each) / len(each) for each in (first, second))
    return float((statistics.fmean(first) - statistics.fmean(second)) / spread**0.5)


def main() -> None:
    """Print a line for each case; exit 1 when one tells something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    count = parser.parse_args().count
    gc.disable()
    found = []
    for name, case in CASES.items():
        first, second = measured(case, count)
        found.append(welch_t(first, second))
        means = " and ".join(f"{statistics.fmean(each) / 1000:.2f} µs" for each in (first, second))
        print(f"{name}: t = {found[-1]:.2f}, {means}")
    sys.exit(max(map(abs, found)) >= T_MAX)


if __name__ == "__main__":
    main()
