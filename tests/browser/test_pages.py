"""What single pages do, with much in them and with hostile things in them, in a real browser."""

import json

import pytest

from poe.client import Queue
from tests.browser.conftest import View
from tests.gateway.console.conftest import Shown

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e"
RULES = """\
name = "trial"
source = { topics = ["numbers"] }
decode = "json"
otherwise = "drop"

[[rule]]
id = "large"
body = { amount = { gt = 100 } }
to = "large"
"""


def url(node):
    return f"poe://127.0.0.1:{node.address[1]}"


def give_up(node, topic, group, reason):
    node.put(topic, b"lost work")
    with Queue(url(node), topic, group=group, group_options={"attempts_max": 1}) as queue:
        queue.get().dead(reason)


def test_dead_letters_are_put_back_and_discarded(view):
    node = view.console.node
    give_up(node, "work", "workers", "no way")
    page = view.show("group", "lost work", group="workers")
    page.get_by_role("button", name="Put all back").click()
    page.get_by_text("There is none to deal with").wait_for()
    give_up(node, "work2", "workers2", "never")
    page = view.show("group", "lost work", group="workers2")
    view.shot("dead-letters")
    page.get_by_role("button", name="Discard all…").click()
    page.get_by_label("Type workers2 to go on").fill("workers2")
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    page.get_by_text("There is none to deal with").wait_for()
    with Queue(url(node), "work", group="workers") as queue:
        job = queue.get(timeout_s=10)
        assert job is not None
        assert job.value == b"lost work"


def test_rules_are_tried_and_compared(view):
    for number in (5, 150, 500):
        view.console.node.put("numbers", json.dumps({"amount": number}).encode())
    page = view.show("dryrun", "Nothing is put")
    page.get_by_label("Rules, as in a file .toml").fill(RULES)
    page.get_by_text("Compare with other rules").click()
    page.get_by_label("Rules as they were").fill(RULES.replace("100", "200"))
    page.get_by_role("button", name="Dry run").click()
    page.get_by_text("trial: 3 messages of numbers").wait_for()
    view.shot("dryrun")
    row = page.get_by_role("row").filter(has_text="largeto")
    assert row.get_by_role("cell").all_inner_texts() == ["large", "to", "1", "2"]
    page.get_by_label("Rules, as in a file .toml").fill("name = =")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_role("alert").get_by_text("rules.toml, line 1").wait_for()


@pytest.fixture(scope="module")
def hostile(node, console):
    """A topic and a group with markup and script wherever there may be text."""
    node.create_topic("hostile", envelope=True)
    given = {"value": HOSTILE, "key": HOSTILE, "headers": {"h": HOSTILE}}
    assert console.http.post("messages/hostile", json=given).status_code == 200
    give_up(node, "hostile", "hostile", HOSTILE)
    return console.http.get("messages/hostile").json()["rows"][0]["pointer"]


@pytest.mark.parametrize("page", ["messages", "topic", "group", "groups", "instant", "events"])
def test_hostile_texts_stay_text_wherever_they_are_shown(view, hostile, page):
    query = {"topic": "hostile", "group": "hostile"}
    if page == "messages":
        query["open"] = hostile
    shown = view.show(page, "hostile", **query)
    shown.wait_for_timeout(200)
    assert shown.locator("img").count() == 0


def test_a_message_of_16_mib_is_opened_in_part_and_downloaded_whole(view):
    message = b"x" * (16 << 20)
    pointer = view.console.node.put("large", message)
    page = view.show("messages", "16.0 MiB", topic="large", open=pointer)
    page.get_by_text("the first 1 MiB is shown").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().stat().st_size == len(message)


def test_ten_thousand_topics_are_paged_and_filtered(chromium, tmp_path, serve):
    node = serve(dir=tmp_path / "many")
    for number in range(10_000):
        node.put(f"topic-{number:05}", b"x")
    with Shown(node) as console:
        view = View(chromium, console)
        page = view.show("topics", "topic-00000")
        page.get_by_text("1 to 100 of 10,000").wait_for()
        page.get_by_role("button", name="Next").click()
        page.get_by_text("topic-00100").wait_for()
        page.get_by_label("Filter").fill("09999")
        page.get_by_text("1 to 1 of 1").wait_for()
        assert page.get_by_role("row").count() == 2
        view.close()


def test_what_one_types_and_where_one_is_stay_while_states_come(view):
    page = view.show("topics", "orders")
    page.get_by_label("Filter").focus()
    page.keyboard.type("ord")
    for number in range(5):
        view.console.node.put("orders", b"more %d" % number)
    page.wait_for_timeout(6000)  # a state comes each 5 s
    assert page.evaluate("document.activeElement.type") == "search"
    assert page.get_by_label("Filter").input_value() == "ord"


def test_arrow_keys_go_through_the_tree_and_enter_opens_the_history(view):
    page = view.show("tree", "scrubber")
    page.locator("[role=treeitem] .row").first.focus()
    page.keyboard.press("ArrowDown")
    assert "appendix_sup" in page.evaluate("document.activeElement.innerText")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="What happened to").wait_for()


def test_nothing_moves_for_those_who_want_it_so(view):
    page = view.show("tree", "scrubber")
    moving = "[...document.querySelectorAll('*')].filter(each => parseFloat(getComputedStyle(each)"
    moving += ".animationDuration) > 0.01 || parseFloat(getComputedStyle(each)"
    moving += ".transitionDuration) > 0.01).length"
    assert page.evaluate(moving) == 0
