"""Edit hooks that tests have a gateway run."""

import asyncio
import threading
from dataclasses import replace

from poe.gateway.http import Answer, Post, Rejection


def edit(post: Post):
    """Do what the topic says."""
    match post.topic:
        case b"fail":
            msg = "a bug in the hook"
            raise TimeoutError(msg)
        case b"find":
            next(iter(()))
        case b"hang":
            threading.Event().wait(2.0)
        case b"hang_for_good":
            threading.Event().wait()
    edited = {
        b"shout": replace(post, messages=[b"HELLO"]),
        b"elsewhere": replace(post, topic=b"edited", messages=[b"in place of it"]),
        b"answer": Answer(b'{"ok":"fast reply"}'),
        b"reject": Rejection("ekaf.insufficient", status=422),
        b"nothing": replace(post, messages=[]),
        b"none": None,
    }
    return edited.get(post.topic, post)


async def edit_async(post: Post):
    """Do the same in the gateway's own thread."""
    if post.topic.startswith(b"hang"):
        await asyncio.Event().wait()
    return edit(post)


def redirect(post):
    """Tell whether the token is there, or lead elsewhere."""
    [message] = post.messages
    if message == b"headers":
        return Answer(b"authorization" if "authorization" in post.headers else b"no authorization")
    return replace(post, topic=message.removeprefix(b"to "))
