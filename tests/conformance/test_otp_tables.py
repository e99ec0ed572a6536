"""The recorded `ets` sequences, command by command: tables do what Erlang's did."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.table_world import TableWorld
from tests.testing.json_text import json_text

RECORDED = Path(__file__).parent.parent / "conformance" / "data" / "ets.jsonl.xz"
SEQUENCES = [json.loads(line) for line in lzma.decompress(RECORDED.read_bytes()).splitlines()]


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence["id"])
def test_tables_do_what_was_recorded_of_otp(sequence):
    world = TableWorld()
    state: dict[str, Any] = {}
    for number, (command, recorded) in enumerate(
        zip(sequence["cmds"], sequence["obs"], strict=True)
    ):
        state = recorded.get("st", state)
        expected = {"ret": recorded["ret"], "ev": recorded["ev"], "st": state}
        observed = world.play(command)
        assert json_text(observed) == json_text(expected), f"command {number}: {command}"
    world.system.shutdown()
