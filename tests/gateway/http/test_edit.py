"""The edit hook of a real gateway: it changes, moves, answers, rejects, fails and hangs."""

import asyncio
import gc
import threading
import weakref

import pytest

from poe.errors import RequestRefused
from poe.gateway.http.edit import EditHook, Post
from tests.cli.processes import complaint, poe
from tests.gateway.http.front import Front, stored

pytestmark = pytest.mark.slow

HOOKS = "tests.gateway.http.edits"


@pytest.fixture(scope="module", params=["edit", "edit_async"])
def edited(request, node):
    hook = f"{HOOKS}:{request.param}"
    with Front(node, "--edit", hook, "--edit-timeout-s", 0.5) as front:
        yield front


def test_the_hook_changes_what_is_produced(edited, node):
    assert edited.http.post("/sync/shout", content=b"hello").json()["delivered"] == 1
    assert stored(node, "shout")[-1] == b"HELLO"
    assert edited.http.post("/sync/elsewhere", content=b"x").status_code == 200
    assert stored(node, "edited")[-1] == b"in place of it"
    assert edited.http.post("/sync/plain", content=b"as it is").status_code == 200
    assert stored(node, "plain")[-1] == b"as it is"


@pytest.mark.parametrize(
    ("topic", "status", "told"),
    [
        ("answer", 200, '{"ok":"fast reply"}'),
        ("reject", 422, "ekaf.insufficient"),
        ("nothing", 400, "empty list"),
        ("none", 500, "nothing was produced"),
        ("fail", 500, "nothing was produced"),
        ("find", 500, "nothing was produced"),
        ("hang", 503, "more than 0.5 s"),
    ],
)
def test_what_the_hook_does_not_let_pass_is_not_produced(edited, node, topic, status, told):
    reply = edited.http.post(f"/async/{topic}", content=b"x")
    assert reply.status_code == status, reply.text
    assert told in reply.text
    assert ("Retry-After" in reply.headers) is (status == 503)
    assert stored(node, topic) == []


def test_what_the_hook_raises_is_logged(edited):
    edited.http.post("/async/fail", content=b"x")
    log = edited.read_until(b"a bug in the hook", pipe=edited.process.stderr)
    assert b"Traceback" in log


def test_a_hook_that_hangs_does_not_hold_up_the_end(node):
    with Front(node, "--edit", f"{HOOKS}:edit", "--edit-timeout-s", 0.1) as front:
        for _ in range(20):  # more than there are threads
            assert front.http.post("/async/hang_for_good", content=b"x").status_code == 503
        code, _, stderr = front.end()
    assert code == 0
    assert b"still runs for /async/hang_for_good" in stderr


@pytest.mark.parametrize("name", ["no_such_module:edit", f"{HOOKS}:no_such_function", HOOKS, ":x"])
def test_a_hook_that_there_is_not_is_told_before_anything_starts(name):
    run = poe("gateway", "--port", 0, "--edit", name)
    assert run.returncode == 2
    assert "MODULE:FUNCTION" in complaint(run)


class Messages(list[bytes]):
    """Some that tell when they are gone."""


async def test_what_a_hook_that_hangs_does_not_come_to_is_not_kept():
    may_go_on = threading.Event()

    def hang(post):
        may_go_on.wait()
        return post

    hook = EditHook(hang, 0.01)
    known = []
    try:
        for number in range(100):
            messages = Messages([b"%d" % number])
            known.append(weakref.ref(messages))
            with pytest.raises(RequestRefused, match="took more than"):
                await hook.edited(Post(b"t", messages, "/async/t", {}))
        gc.collect()
        assert sum(each() is not None for each in known) < 50
    finally:
        may_go_on.set()


async def test_a_hook_sees_any_number_of_posts():
    hook = EditHook(lambda post: post, 20)
    posts = [Post(b"t", [b"%d" % number], "/async/t", {}) for number in range(100)]
    assert await asyncio.gather(*map(hook.edited, posts)) == posts
