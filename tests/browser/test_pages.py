"""What single pages do, with much in them and with hostile things in them, in a real browser."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from poe.client import Queue
from poe.protocol import socket as connect
from poe.protocol.envelope import encode
from tests.browser.conftest import View, violations
from tests.cli.processes import Background
from tests.gateway.console.conftest import Shown
from tests.waiting import wait_until

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
    changed = page.get_by_role("region", name="What is other in the rules")
    assert "200" in changed.locator("del").inner_text()
    assert "100" in changed.locator("ins").inner_text()
    page.get_by_label("Rules, as in a file .toml").fill("name = =")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_role("alert").get_by_text("rules.toml, line 1").wait_for()


def test_dead_letters_of_all_groups_are_seen_by_reason_and_compared(view):
    node = view.console.node
    for each in (b'{"id": 1, "city": "Bonn"}', b'{"id": 2, "city": "Kiel"}'):
        node.put("cities", each)
    with Queue(url(node), "cities", group="guides", group_options={"attempts_max": 1}) as queue:
        queue.get().ack()
        queue.get().dead("no such city")
    page = view.show("dead", "guides")
    page.get_by_text("1 × no such city").first.wait_for()
    view.shot("dead")
    page.get_by_role("link", name="guides").click()
    page.get_by_role("button", name="1 × no such city").click()
    page.get_by_role("button", name="Put these back").wait_for()
    page.get_by_role("button", name="Compare").click()
    compared = page.get_by_role("dialog", name="Beside the last good message")
    compared.get_by_text("2 of 2 differ").wait_for()
    view.shot("compare")
    compared.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Put back", exact=True).click()
    page.get_by_text("None has such a reason").wait_for()


def test_dead_letters_that_are_not_shown_are_put_back_by_their_reason(view):
    node = view.console.node
    give_up(node, "shelves", "librarians", "worn out")
    for _ in range(200):
        headers = {"poe.reason": b"no shelf", "poe.topic": b"shelves", "poe.pointer": b"1"}
        node.put("librarians.dead", encode(None, b"book", headers))
    headers["poe.reason"] = b"no reader"
    node.put("librarians.dead", encode(None, b"the last book", headers))
    page = view.show("group", "worn out", group="librarians")
    page.get_by_text("the oldest 200 were looked at").wait_for()
    page.get_by_label("Reason holds").fill("no reader")
    page.get_by_text("None of the oldest 200 has such a reason").wait_for()
    page.get_by_role("button", name="Put these back").click()
    wait_until(lambda: view.console.http.get("topics/shelves").json()["messages"] == 2, 20)
    newest = view.console.http.get("messages/shelves").json()["rows"][-1]
    assert newest["preview"] == "the last book"


def test_a_mapping_that_runs_shows_what_has_met_its_rules(view, tmp_path):
    node = view.console.node
    rules = RULES.replace("trial", "sizes").replace("numbers", "amounts")
    file = tmp_path / "sizes.toml"
    file.write_text(rules.replace('to = "large"', 'to = "large.amounts"'))
    for amount in (5, 150, 500):
        node.put("amounts", json.dumps({"amount": amount}).encode())
    with Background("mapping", "run", file, port=node.address[1]):
        page = view.show("mappings")
        page.get_by_role("cell", name="to large.amounts").wait_for(timeout=30_000)
        rule = page.get_by_role("row").filter(has_text="to large.amounts")
        rule.filter(has=page.get_by_role("cell", name="2", exact=True)).wait_for(timeout=30_000)
        assert rule.get_by_role("cell").all_inner_texts()[0] == "large"
        view.shot("mappings")
        assert violations(page) == []
        page.get_by_role("link", name="mapping.sizes").click()
        page.get_by_role("heading", name="mapping.sizes").wait_for()


def test_a_link_of_others_makes_no_button_do_something_else(view):
    with connect("127.0.0.1", view.console.node.address[1]) as connection:
        made: dict[str, Any] = {"mode": "shared", "topics": [b"orders"], "options": {}}
        connection.control("group_create", group="victim", **made)
    page = view.show("messages", topic=quote("../groups/victim/pause?", safe=""))
    page.get_by_role("button", name="Put…").click()
    page.get_by_label("Value").fill("harmless")
    with page.expect_response(lambda each: each.request.method == "POST"):
        page.get_by_role("dialog").get_by_role("button", name="Put").click()
    assert view.console.http.get("groups/victim").json()["state"] == "ok"
    page = view.show("messages", "harmless", topic=quote(quote("../groups/victim/pause?", safe="")))
    page.get_by_role("heading", name="../groups/victim/pause?").wait_for()


def test_an_error_of_before_goes_when_a_pipeline_is_asked_to_stop(view):
    page = view.page
    row: dict[str, Any] = {
        "name": "p",
        "kind": "pipeline",
        "state": "running",
        "queries": [],
        "more": None,
    }
    answers: Iterator[dict[str, Any]] = iter([{"status": 500, "json": {}}, {"json": {}}])
    page.route("**/api/pipelines", lambda route: route.fulfill(json={"rows": [row]}))
    page.route("**/api/pipelines/p/stop", lambda route: route.fulfill(**next(answers)))
    view.show("pipelines", "pipeline p")
    stop = page.get_by_role("button", name="Stop")
    stop.click()
    page.get_by_role("alert").wait_for()
    stop.click()
    page.get_by_role("alert").wait_for(state="detached")


def test_a_key_is_followed_through_topics(view):
    node = view.console.node
    node.create_topic("people", envelope=True)
    given = {"key": "ann-7", "value": "moved"}
    assert view.console.http.post("messages/people", json=given).status_code == 200
    node.put("letters", b"to ann-7: hello")
    page = view.show("messages", "moved", topic="people")
    page.locator("tr.message").first.click()
    page.get_by_role("link", name="Follow its key").click()
    page.get_by_text("2 messages in 2 topics").wait_for()
    page.get_by_text("to ann-7: hello").wait_for()
    view.shot("follow")
    assert violations(page) == []


def test_what_is_typed_before_the_page_is_drawn_anew_is_what_is_looked_for(view):
    """The text was looked for in the way that had been chosen before."""
    view.console.node.put("sums", b'{"amount": 1}')
    page = view.show("messages", "Time and pointer", topic="sums")
    page.get_by_label("Find").wait_for()
    page.evaluate("""() => {
        const bubbles = { bubbles: true };
        const way = [...document.querySelectorAll("select")].find((each) =>
            [...each.options].some((option) => option.value === "cel"));
        const text = document.querySelector("input[type=search].wide");
        way.value = "cel";
        way.dispatchEvent(new Event("change", bubbles));
        text.value = "body.amount ==";
        text.dispatchEvent(new Event("input", bubbles));
        text.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ...bubbles }));
    }""")
    page.get_by_role("alert").get_by_text("at character").wait_for()


def test_messages_are_found_by_fields_and_two_are_compared(view):
    for number in range(20):
        document = {"amount": number, "country": "DE" if number % 2 else "FR"}
        view.console.node.put("sums", json.dumps(document).encode())
    page = view.show("messages", "Time and pointer", topic="sums")
    page.get_by_role("img", name="Messages by time").wait_for()
    page.get_by_role("combobox", name="as").select_option("json")
    page.get_by_label("Find").fill('{"amount": {"ge": 18}}')
    page.keyboard.press("Enter")
    page.get_by_text("2 found").wait_for()
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare").click()
    dialog = page.get_by_role("dialog", name="Two messages")
    dialog.get_by_text("2 of 2 differ").wait_for()
    view.shot("diff")
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("combobox", name="as").select_option("cel")
    page.get_by_label("Find").fill("body.amount ==")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("at character").wait_for()


def test_whoever_asks_the_same_again_gets_what_there_is_by_now(view):
    node = view.console.node
    node.put("asked", b"needle 1")
    page = view.show("messages", "needle 1", topic="asked")
    node.put("asked", b"needle 2")
    page.get_by_role("button", name="Newest").click()
    page.get_by_text("2 of 2 messages").wait_for()
    page.get_by_label("Find").fill("needle")
    page.keyboard.press("Enter")
    page.get_by_text("2 found").wait_for()
    node.put("asked", b"needle 3")
    page.get_by_role("button", name="Find").click()
    page.get_by_text("3 found").wait_for()
    page.get_by_role("button", name="Tail").click()
    page.get_by_text("tailing").wait_for()
    page.get_by_role("button", name="Find").click()
    page.get_by_text("3 found").wait_for()
    page = view.show("follow", "3 messages in 1 topics", text="needle")
    node.put("asked", b"needle 4")
    page.get_by_role("button", name="Follow").click()
    page.get_by_text("4 messages in 1 topics").wait_for()
    page = view.show("instant", "needle 4", filter="asked")
    node.put("asked", b"needle 5")
    page.get_by_role("button", name="Now").click()
    page.get_by_text("needle 5").wait_for()


def test_what_a_search_has_found_stays_where_it_cannot_look_on(view):
    page = view.show("messages", "Time and pointer", topic="orders")
    error = {"name": "RequestRefused", "code": 902, "message": "other filters are at work"}
    row = {"pointer": "17", "bytes": 1, "key": None, "form": "text", "preview": "found before"}
    answers: Iterator[dict[str, Any]] = iter(
        [
            {"json": {"rows": [row], "looked_until": "17", "is_end": False}},
            {"json": {"error": error}, "status": 503},
            {"json": {"rows": [], "looked_until": "18", "is_end": True}},
        ]
    )
    page.route("**/search?*", lambda route: route.fulfill(**next(answers)))
    page.get_by_label("Find").fill("anything")
    page.keyboard.press("Enter")
    page.get_by_text("found before").wait_for()
    page.get_by_role("button", name="Look on").click()
    page.get_by_role("alert").get_by_text("other filters are at work").wait_for()
    page.get_by_text("found before").wait_for()
    page.get_by_role("button", name="Look on").click()
    page.get_by_text("All of the topic was looked at").wait_for()
    page.get_by_text("found before").wait_for()
    assert page.get_by_role("alert").count() == 0


@pytest.mark.parametrize(
    ("topic", "given", "differing"),
    [
        ("dotted", [{"value": '{"a.b": 1}'}, {"value": '{"a": {"b": 1}}'}], "2 of 2 differ"),
        ("listed", [{"value": '{"a": [1]}'}, {"value": '{"a": {"0": 1}}'}], "2 of 2 differ"),
        ("sealed", [{"key": "ann", "value": "1"}, {"key": "bob", "value": "1"}], "1 of 2 differ"),
    ],
)
def test_messages_that_differ_are_not_told_to_be_equal(view, topic, given, differing):
    view.console.node.create_topic(topic, envelope=topic == "sealed")
    for each in given:
        assert view.console.http.post(f"messages/{topic}", json=each).status_code == 200
    page = view.show("messages", "Time and pointer", topic=topic)
    page.get_by_role("checkbox").first.wait_for()
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("dialog", name="Two messages").get_by_text(differing).wait_for()


def test_a_link_to_a_message_finds_the_partition_that_has_it(view):
    """Dead letters of mappings tell of the topic alone."""
    node = view.console.node
    node.create_topic("split", partitions=3)
    pointers = [node.put(f"split-{number}", b"of part %d" % number) for number in range(3)]
    page = view.show("messages", topic="split", open=pointers[2])
    page.get_by_role("dialog").get_by_text("of part 2").wait_for()
    page.get_by_role("heading", name="split-2").wait_for()


def test_behind_a_link_to_a_message_each_partition_can_be_chosen(view):
    node = view.console.node
    node.create_topic("grown")
    node.put("grown", b"first")
    node.control("topic_alter", topic="grown", properties={"partitions": 2})
    pointer = node.put("grown-1", b"second")
    page = view.show("messages", topic="grown", open=pointer)
    page.get_by_role("dialog").get_by_text("second").wait_for()
    page.keyboard.press("Escape")
    page.get_by_label("Partition").select_option(index=0)
    page.locator("tr.message").get_by_text("first").wait_for()
    page.wait_for_timeout(200)
    page.locator("tr.message").get_by_text("first").wait_for()


def test_a_message_is_shown_in_the_form_that_is_chosen(view):
    view.console.node.put("formed", b'{"n":1}')
    page = view.show("messages", "Time and pointer", topic="formed")
    page.locator("tr.message").first.click()
    dialog = page.get_by_role("dialog")
    for form, text in (
        ("hex", "7b 22 6e 22"),
        ("text", '{"n":1}'),
        ("json", '"n": 1'),
        ("msgpack", "cannot be shown as msgpack"),
    ):
        dialog.get_by_label("Shown as").select_option(form)
        dialog.get_by_text(text).wait_for()


def test_numbers_are_shown_as_they_are_written_and_compared_so(view):
    for number in ("12345678901234567890", "12345678901234567891"):
        view.console.node.put("numbered", b'{"id": %s, "part": 1.0}' % number.encode())
    page = view.show("messages", "Time and pointer", topic="numbered")
    page.locator("tr.message").first.click()
    shown = page.get_by_role("dialog").locator("pre")
    shown.get_by_text("12345678901234567890").wait_for()
    assert shown.inner_text() == '{\n  "id": 12345678901234567890,\n  "part": 1.0\n}'
    page.get_by_role("button", name="Close").click()
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare").click()
    dialog = page.get_by_role("dialog", name="Two messages")
    dialog.get_by_text("1 of 2 differ").wait_for()
    assert dialog.locator("ins").inner_text() == "12345678901234567891"


def test_a_range_and_a_choice_are_put_again(view):
    for number in range(5):
        view.console.node.put("again", b"message %d" % number)
    page = view.show("messages", "message 4", topic="again")
    page.get_by_role("button", name="Put many again…").click()
    dialog = page.get_by_role("dialog", name="Put many again")
    dialog.get_by_label("Onto topic").fill("again copy")
    dialog.get_by_role("button", name="Look").click()
    dialog.get_by_text("5 messages would be put").wait_for()
    dialog.get_by_role("button", name="Put again").click()
    dialog.wait_for(state="detached")
    copied = view.console.http.get("messages/again%20copy").json()["rows"]
    assert [each["preview"] for each in copied] == [f"message {each}" for each in range(5)]
    page.get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Put again", exact=True).click()
    page.get_by_text("6 of 6 messages").wait_for()


def test_of_a_choice_that_is_put_again_in_part_only_the_rest_stays_chosen(view):
    for number in range(3):
        view.console.node.put("partly", b"message %d" % number)
    page = view.show("messages", "message 2", topic="partly")
    asked: list[Any] = []

    def refuse_second(route):
        asked.append(route.request)
        route.abort() if len(asked) == 2 else route.continue_()

    page.route("**/partly/again", refuse_second)
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Put again", exact=True).click()
    page.get_by_role("alert").wait_for()
    page.get_by_text("2 chosen").wait_for()
    page.get_by_role("button", name="Put again", exact=True).click()
    page.get_by_text("6 of 6 messages").wait_for()
    rows = view.console.http.get("messages/partly").json()["rows"]
    assert [each["preview"] for each in rows] == [f"message {each}" for each in (0, 1, 2, 0, 1, 2)]


def test_a_message_that_is_edited_keeps_its_key_however_it_is_shown(view):
    view.console.node.create_topic("keyed", envelope=True)
    given = {"key": "ann", "value": "before", "headers": {"trace": "7"}}
    assert view.console.http.post("messages/keyed", json=given).status_code == 200
    # By http from elsewhere there is no clipboard.
    view.context.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    )
    page = view.show("messages", "before", topic="keyed")
    page.locator("tr.message").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Put again…").click()
    assert dialog.get_by_role("button", name="Copy").count() == 0
    dialog.get_by_label("Value").fill("after")
    with page.expect_response("**/value?*as=hex"):
        dialog.get_by_label("Shown as").select_option("hex")
    page.wait_for_timeout(100)
    dialog.get_by_role("button", name="Put", exact=True).click()
    dialog.wait_for(state="detached")
    pointer = view.console.http.get("messages/keyed").json()["rows"][-1]["pointer"]
    told = view.console.http.get("messages/keyed/value", params={"pointer": pointer}).json()
    assert (told["key"], told["text"], told["headers"]) == ("ann", "after", {"trace": "7"})


def test_messages_are_put_again_onto_their_topic_whatever_its_name(view):
    name = b"bytes \xff \\"
    view.console.node.put(name, b"message of bytes")
    page = view.show("messages", "message of bytes", topic=quote(quote(name)))
    page.get_by_role("button", name="Put many again…").click()
    dialog = page.get_by_role("dialog", name="Put many again")
    dialog.get_by_role("button", name="Look").click()
    dialog.get_by_text("1 messages would be put").wait_for()
    dialog.get_by_role("button", name="Put again").click()
    page.get_by_text("2 of 2 messages").wait_for()


def test_a_double_click_puts_one_message(view):
    view.console.node.put("clicked", b"there")
    page = view.show("messages", "there", topic="clicked")
    held: list[Any] = []

    def hold(route):
        held.append(route) if route.request.method == "POST" else route.continue_()

    page.route("**/api/messages/clicked", hold)
    page.get_by_role("button", name="Put…").click()
    page.get_by_label("Value").fill("once")
    page.get_by_role("dialog").get_by_role("button", name="Put").dblclick()
    wait_until(lambda: page.wait_for_timeout(20) or held, 20)
    while held:
        held.pop().continue_()
        page.wait_for_timeout(200)
    page.get_by_text("2 of 2 messages").wait_for()


def go_to(page, path):
    """Lead a tab elsewhere as its back button does: the page is not loaded anew."""
    page.evaluate("(path) => history.pushState(null, '', path)", f"/console/{path}")
    page.evaluate("dispatchEvent(new Event('popstate'))")


def test_what_is_known_of_one_thing_is_not_shown_as_that_of_another(view):
    """While that is awaited, and also where it cannot be had."""
    node = view.console.node
    held: list[Any] = []

    def hold(route):
        held.append(route)

    node.create_topic("apart", partitions=2)
    node.put("apart-0", b"of the first")
    page = view.show("messages", "of the first", topic="apart-0")
    page.route("**/api/messages/apart-1*", hold)
    page.get_by_label("Partition").select_option("apart-1")
    wait_until(lambda: page.wait_for_timeout(20) or held, 20)
    assert page.locator("tr.message").count() == 0
    assert page.get_by_label("Partition").input_value() == "apart-1"
    while held:
        held.pop().abort()
    page.get_by_role("alert").wait_for()
    assert page.locator("tr.message").count() == 0
    with connect("127.0.0.1", node.address[1]) as connection:
        for number, name in enumerate(("known", "other")):
            made = {"mode": "shared", "topics": [b"apart-%d" % number], "options": {}}
            connection.control("group_create", group=name, **made)
    page = view.show("group", "oldest lease", group="known")
    page.get_by_role("button", name="Reset…").click()
    page.route("**/api/groups/other", hold)
    go_to(page, "group?group=other")
    wait_until(lambda: page.wait_for_timeout(20) or held, 20)
    assert page.get_by_role("button", name="Pause").count() == 0
    held.pop().continue_()
    page.get_by_role("heading", name="other", exact=True).wait_for()
    assert page.get_by_role("dialog").count() == 0
    page.unroute_all(behavior="ignoreErrors")


def test_what_has_not_come_is_not_told_to_be_nothing(view):
    page = view.page
    held: list[Any] = []

    def hold(route):
        held.append(route)

    def show(path, name, **query):
        held.clear()
        page.route(path, hold)
        view.show(name, **query)
        wait_until(lambda: page.wait_for_timeout(20) or held, 20)

    give_up(view.console.node, "missed", "missers", "no way")
    show("**/messages/missed?*", "messages", topic="missed", place="oldest")
    assert page.get_by_text("There is no message").count() == 0
    held[0].continue_()
    page.get_by_text("lost work").wait_for()
    show("**/missers/dead", "group", group="missers")
    page.get_by_role("heading", name="Dead letters").wait_for()
    assert page.get_by_text("There is none to deal with").count() == 0
    show("**/api/deeds", "health")
    page.get_by_role("heading", name="What was done with this console").wait_for()
    assert page.get_by_text("Nothing.", exact=True).count() == 0
    page.unroute_all(behavior="ignoreErrors")


def test_a_range_that_is_put_again_stays_that_of_its_partition(view):
    node = view.console.node
    node.create_topic("ranged", partitions=2)
    node.put("ranged-0", b"of the first")
    page = view.show("messages", "Time and pointer", topic="ranged-1")
    page.get_by_label("Partition").select_option("ranged-0")
    page.get_by_text("of the first").wait_for()
    page.get_by_role("button", name="Put many again…").click()
    page.go_back()
    page.get_by_role("heading", name="ranged-1").wait_for()
    page.get_by_text("There is no message").wait_for()
    assert page.get_by_role("dialog").count() == 0


def test_an_answer_that_comes_late_leads_nobody_back(view):
    """Whoever has gone on to another page meanwhile stays there."""
    node = view.console.node
    node.put("left", b"old")
    page = view.page
    held: list[Any] = []

    def hold(route):
        held.append(route) if route.request.method != "GET" else route.continue_()

    def leave():
        wait_until(lambda: page.wait_for_timeout(20) or held, 20)
        go_to(page, "dryrun")
        page.get_by_label("Rules, as in a file .toml").fill("typed meanwhile")
        with page.expect_response("**/api/**"):
            held.pop().continue_()
        page.wait_for_timeout(200)
        assert page.get_by_label("Rules, as in a file .toml").input_value() == "typed meanwhile"

    page.route("**/left*", hold)
    view.show("messages", "old", topic="left")
    page.locator("tr.message").first.click()
    page.get_by_role("button", name="Put again…").click()
    page.get_by_role("button", name="Put", exact=True).click()
    leave()
    view.show("topic", "Partitions", topic="left")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_label("Type left to go on").fill("left")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    leave()
    assert b"left" not in node.topics()


def test_a_look_at_what_was_given_before_is_none_at_what_is_given_now(view):
    """Its answer comes when something else is chosen already."""
    node = view.console.node
    node.put_many("looked", [b"x"] * 7)
    with connect("127.0.0.1", node.address[1]) as connection:
        made: dict[str, Any] = {"mode": "shared", "topics": [b"looked"], "options": {}}
        connection.control("group_create", group="lookers", **made)
    held: list[Any] = []

    def hold(route):
        held.append(route)

    def look(dialog, text):
        dialog.get_by_role("button", name="Look").click()
        wait_until(lambda: page.wait_for_timeout(20) or held, 20)
        return dialog.get_by_text(text)

    def answer():
        with page.expect_response("**/api/**"):
            held.pop().continue_()
        page.wait_for_timeout(100)

    page = view.show("group", "oldest lease", group="lookers")
    page.route("**/lookers/reset", hold)
    page.get_by_role("button", name="Reset…").click()
    dialog = page.get_by_role("dialog", name="Reset")
    dialog.get_by_label("To").select_option("newest")
    seen = look(dialog, "7 skipped")
    dialog.get_by_label("To").select_option("oldest")
    answer()
    assert seen.count() == 0
    assert dialog.get_by_role("button", name="Reset", exact=True).count() == 0
    page = view.show("messages", "Time and pointer", topic="looked")
    page.route("**/looked/again", hold)
    page.get_by_role("button", name="Put many again…").click()
    dialog = page.get_by_role("dialog", name="Put many again")
    seen = look(dialog, "7 messages would be put")
    dialog.get_by_label("Onto topic").fill("elsewhere")
    answer()
    assert seen.count() == 0
    assert dialog.get_by_role("button", name="Put again").is_disabled()


def test_a_group_is_replayed_in_a_shadow(view):
    view.console.node.put("plays", b"one")
    with Queue(url(view.console.node), "plays", group="actors") as queue:
        queue.get().ack()
    page = view.show("group", "oldest lease", group="actors")
    page.get_by_role("button", name="Shadow…").click()
    page.get_by_label("Begins at").select_option("oldest")
    page.get_by_role("button", name="Make it").click()
    page.get_by_role("heading", name="actors.shadow").wait_for()
    told = {
        name: view.console.http.get(f"groups/{name}").json() for name in ("actors", "actors.shadow")
    }
    assert [each["units"][0]["messages"] for each in told.values()] == [0, 1]


def test_all_topics_are_reached_on_the_page_of_one_time(view):
    for number in range(60):
        view.console.node.put(f"moment-{number:02}", b"x")
    page = view.show("instant", "moment-00", filter="moment-")
    page.get_by_text("1 to 50 of 60").wait_for()
    page.get_by_role("button", name="Next").click()
    page.get_by_role("link", name="moment-50").wait_for()
    page.get_by_text("51 to 60 of 60").wait_for()


@pytest.mark.parametrize("time_us", ["", "never", "9" * 20])
def test_what_is_no_time_takes_no_page_down(view, time_us):
    page = view.show("instant", "All topics at one time", time_us=time_us)
    page.get_by_label("Time (UTC)").fill("2026-01-01T00:00:00")
    page.get_by_text("Topics at 2026-01-01").wait_for()
    page.get_by_label("Time (UTC)").fill("")
    page.get_by_role("button", name="1 s later").click()
    page.get_by_text("00:00:01").wait_for()


@pytest.fixture(scope="module")
def hostile(node, console):
    """A topic and a group with markup and script wherever there may be text."""
    node.create_topic("hostile", envelope=True)
    given = {"value": HOSTILE, "key": HOSTILE, "headers": {"h": HOSTILE}}
    assert console.http.post("messages/hostile", json=given).status_code == 200
    give_up(node, "hostile", "hostile", HOSTILE)
    return console.http.get("messages/hostile").json()["rows"][0]["pointer"]


@pytest.mark.parametrize(
    "page", ["messages", "topic", "group", "groups", "dead", "follow", "instant", "events"]
)
def test_hostile_texts_stay_text_wherever_they_are_shown(view, hostile, page):
    query = {"topic": "hostile", "group": "hostile", "text": "onerror"}
    if page == "messages":
        query = {"topic": "hostile", "open": hostile}
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
