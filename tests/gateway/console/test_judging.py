"""The process that judges what was typed, as far as the console hears of it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from poe.errors import RequestRefused
from poe.gateway.console.judging import answer


async def test_an_answer_that_is_too_long_is_refused_with_what_helps():
    reader = asyncio.StreamReader(limit=10)
    reader.feed_data(b"x" * 100)
    process: Any = SimpleNamespace(stdout=reader)
    with pytest.raises(RequestRefused, match="look at fewer messages"):
        await answer(process)
