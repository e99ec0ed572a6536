"""The console's frame, its overview and its pages of topics, in a real browser."""

import os
import threading
import time
from typing import Any

import pytest

from poe.node import Node
from tests.broker.nodes import kill
from tests.browser.conftest import View, violations
from tests.gateway.console.conftest import Shown
from tests.waiting import wait_until

HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def test_the_printed_url_logs_one_browser_in_and_leaves_no_token_in_the_address(chromium, console):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{console.base}/console/login#{console.token}")
    page.get_by_text("All is well").wait_for()
    console.read_token()
    assert page.url == f"{console.base}/console/overview"
    context.close()


def test_a_wrong_token_is_told_and_another_can_be_pasted(chromium, console):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{console.base}/console/login#wrong")
    page.get_by_role("alert").get_by_text("this token is of no use").wait_for()
    page.get_by_label("URL or token").fill(f"{console.base}/console/login#{console.token}")
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("All is well").wait_for()
    console.read_token()
    context.close()


def test_the_next_url_logs_in_also_where_it_is_opened_in_the_tab_of_a_used_one(chromium, console):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{console.base}/console/login#used")
    page.get_by_role("alert").get_by_text("this token is of no use").wait_for()
    page.goto(f"{console.base}/console/login#{console.token}")
    page.get_by_text("All is well").wait_for()
    console.read_token()
    context.close()


def test_a_tab_sees_that_somebody_has_logged_in_in_another_one(chromium, console):
    context = chromium.new_context()
    page, other = context.new_page(), context.new_page()
    page.goto(f"{console.base}/console/topics")
    page.get_by_label("URL or token").wait_for()
    other.goto(f"{console.base}/console/login#{console.token}")
    other.get_by_text("All is well").wait_for()
    console.read_token()
    page.evaluate("dispatchEvent(new Event('focus'))")  # as when one comes back to it
    page.get_by_role("heading", name="Topics").wait_for()
    context.close()


def test_a_page_that_cannot_be_loaded_says_so_and_can_be_tried_again(view):
    page = view.page
    page.route("**/pages/tree.js", lambda route: route.abort())
    page.goto(f"{view.console.base}/console/tree")
    page.get_by_role("alert").get_by_text("Failed to fetch").wait_for()
    page.unroute("**/pages/tree.js")
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("scrubber").first.wait_for()


@pytest.mark.parametrize(
    ("page", "query", "text"),
    [
        ("overview", {}, "All is well"),
        ("topics", {}, "orders"),
        ("topic", {"topic": "orders"}, "Partitions"),
        ("messages", {"topic": "orders"}, '{"id": 249}'),
        ("messages", {"topic": "orders", "text": "24"}, "All of the topic was looked at"),
        ("instant", {}, "Its last message then"),
        ("groups", {}, "billing"),
        ("group", {"group": "billing"}, "oldest lease"),
        ("dead", {}, "Nobody has given up"),
        ("mappings", {}, "No mapping runs"),
        ("follow", {"text": "249"}, "1 messages in 1 topics"),
        ("pipelines", {}, "No pipeline"),
        ("dryrun", {}, "Nothing is put"),
        ("cluster", {}, "is in no cluster"),
        ("tree", {}, "appendix_sup"),
        ("events", {}, "billing"),
        ("connections", {}, "127.0.0.1"),
        ("health", {}, "min_free"),
        ("nothing", {}, "To the overview"),
    ],
)
def test_each_page_is_accessible_in_both_themes(themed, page, query, text):
    themed.show(page, text, **query)
    themed.shot(page)
    assert violations(themed.page) == []


def test_puts_are_seen_live(view):
    page = view.show("overview", "All is well")
    card = page.locator(".cards div", has_text="Put since the start").locator("dd")
    before = card.inner_text()
    for _ in range(100):
        view.console.node.put("live", b"x")
    wait_until(lambda: card.inner_text() != before, 20)


def test_the_chart_begins_though_nothing_is_put(view):
    page = view.page
    is_seen = threading.Event()

    def answer(route):
        nothing: dict[str, Any] = {"times_s": [], "series": {}}
        route.continue_() if is_seen.is_set() else route.fulfill(json=nothing)

    page.route("**/api/history*", answer)
    view.show("overview", "The first two samples are awaited")
    is_seen.set()
    page.get_by_role("img").or_(page.get_by_text("As a table")).first.wait_for()


def test_a_page_whose_answers_take_longer_than_states_come_is_shown(view):
    page = view.page
    streams, held = [], []

    def stream(route):
        streams.append(route)
        body = "retry: 20\n\nevent: overview\ndata: {}\n\n"
        route.fulfill(body=body, headers={"content-type": "text/event-stream"})

    def hold(route):
        held.append(route)

    page.route("**/api/stream*", stream)
    page.route("**/api/groups*", hold)
    view.show("groups")
    wait_until(lambda: page.wait_for_timeout(20) or len(streams) > 5, 20)
    assert len(held) == 1
    held[0].continue_()
    page.get_by_role("link", name="billing").wait_for()
    wait_until(lambda: page.wait_for_timeout(20) or len(held) > 1, 20)  # what has come meanwhile
    page.unroute_all(behavior="ignoreErrors")


def test_what_is_not_answered_for_long_is_told_and_asked_for_again(view):
    """Here time is up when the test says so."""
    view.console.node.put("late", b"there")
    page = view.page
    held: list[Any] = []

    def hold(route):
        held.append(route) if route.request.method == wanted else route.continue_()

    def time_is_up():
        wait_until(lambda: page.wait_for_timeout(20) or held, 20)
        page.evaluate("limits.splice(0).forEach((each) => each())")
        held.clear()

    page.add_init_script("""window.limits = []; AbortSignal.timeout = () => {
        const own = new AbortController();
        limits.push(() => own.abort(new DOMException("time is up", "TimeoutError")));
        return own.signal;
    };""")
    wanted = "GET"
    page.route("**/api/groups*", hold)
    view.show("groups")
    time_is_up()
    page.get_by_text("has not answered within 60 s").wait_for()
    page.unroute("**/api/groups*")
    page.get_by_role("link", name="billing").wait_for()  # with the next state
    wanted = "POST"
    page.route("**/api/messages/late", hold)
    view.show("messages", "there", topic="late")
    page.get_by_role("button", name="Put…").click()
    page.get_by_label("Value").fill("once")
    put = page.get_by_role("dialog").get_by_role("button", name="Put")
    put.click()
    time_is_up()
    page.get_by_text("may be done all the same").wait_for()
    put.click()
    wait_until(lambda: page.wait_for_timeout(20) or held, 20)
    held[0].continue_()
    page.get_by_text("2 of 2 messages").wait_for()


@pytest.mark.alone
def test_a_crash_is_on_the_screen_with_its_cause_within_a_second(view):
    page = view.show("tree", "scrubber")
    page.get_by_text("Last restart").wait_for(state="detached")
    kill(view.console.node, "scrubber")
    page.get_by_text("Last restart").wait_for(timeout=1000)
    page.get_by_role("region", name="Restarts by time").get_by_role("img").first.wait_for()
    page.get_by_role("button", name="Why?").click()
    why = page.get_by_role("dialog", name="Why")
    why.get_by_text("because 'scrubber' of poe_sup ended with").wait_for()
    view.shot("why")


def test_who_has_crashed_can_be_read_in_both_themes(themed):
    kill(themed.console.node, "scrubber")
    page = themed.show("tree", "Last restart")
    page.locator(".row.crashed").first.wait_for()
    assert violations(page) == []


def test_a_group_is_reset_after_a_look_at_what_that_means(view):
    page = view.show("group", "oldest lease", group="billing")
    page.get_by_role("button", name="Reset…").click()
    page.get_by_label("To").select_option("newest")
    page.get_by_role("button", name="Look").click()
    page.get_by_text("250").first.wait_for()
    page.get_by_role("button", name="Reset", exact=True).click()
    page.get_by_text("Lag").first.wait_for()
    assert view.console.http.get("groups/billing").json()["units"][0]["messages"] == 0


def test_a_message_is_put_found_and_opened(view):
    page = view.show("messages", "Time and pointer", topic="orders")
    page.get_by_role("button", name="Put…").click()
    page.get_by_label("Value").fill('{"who": "here"}')
    page.get_by_role("dialog").get_by_role("button", name="Put").click()
    page.get_by_role("dialog").wait_for(state="detached")  # it is stored
    page.get_by_label("Find").fill("here")
    page.keyboard.press("Enter")
    page.get_by_text("1 found").wait_for()
    page.keyboard.press("Enter")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_text('"who": "here"').wait_for()


def test_a_tail_shows_what_is_put(view):
    page = view.show("messages", "Time and pointer", topic="orders")
    page.keyboard.press("t")
    page.get_by_text("tailing").wait_for()
    for number in range(50):
        view.console.node.put("orders", b"tailed %d" % number)
        page.wait_for_timeout(20)
    page.get_by_text("tailed 49").wait_for()


def tailing(view, topic):
    """Have a tab tail a topic, of which it shows nothing yet."""
    page = view.show("messages", "Time and pointer", topic=topic)
    page.keyboard.press("t")
    page.get_by_text("tailing").wait_for()
    wait_until(lambda: _puts_are_seen(view.console.node, page, topic), 20)
    return page


def shown_texts(page):
    return page.locator("tr.message td:last-child").all_inner_texts()


def test_a_tail_shows_what_has_come_while_it_was_paused(view):
    view.console.node.put("paused", b"old")
    page = tailing(view, "paused")
    page.get_by_role("button", name="Pause").click()
    before = shown_texts(page)
    for number in range(3):
        view.console.node.put("paused", b"meanwhile %d" % number)
    page.wait_for_timeout(1000)
    assert shown_texts(page) == before
    page.get_by_role("button", name="Go on").click()
    page.get_by_text("meanwhile 2").wait_for()
    found = [each for each in shown_texts(page) if "meanwhile" in each]
    assert found == ["meanwhile 0", "meanwhile 1", "meanwhile 2"]


def test_a_tail_shows_messages_of_one_partition(view):
    node = view.console.node
    node.create_topic("tailed", partitions=2)
    for number in range(2):
        node.put(f"tailed-{number}", b"old")
    view.show("messages", "Time and pointer", topic="tailed").wait_for_url("**topic=tailed-0*")
    page = tailing(view, "tailed-0")
    page.get_by_label("Partition").select_option("tailed-1")
    page.get_by_role("heading", name="tailed-1").wait_for()
    wait_until(lambda: _puts_are_seen(node, page, "tailed-1", b"of the second"), 20)
    assert {*shown_texts(page)} == {"of the second"}


def test_of_two_searches_the_last_one_is_shown(view):
    page = view.show("messages", "Time and pointer", topic="orders")
    held: list[Any] = []

    def hold(route):
        if "text=late" in route.request.url:
            held.append(route)
        else:
            route.continue_()

    page.route("**/search?*", hold)
    for text in ("late", "24"):
        page.get_by_label("Find").fill(text)
        page.keyboard.press("Enter")
        wait_until(lambda: page.wait_for_timeout(20) or held, 20)
    page.get_by_text("All of the topic was looked at").wait_for()
    shown = shown_texts(page)
    with page.expect_response("**/search?*"):
        held[0].continue_()
    page.wait_for_timeout(100)
    assert shown_texts(page) == shown


def test_a_search_that_is_answered_during_a_tail_is_not_shown_in_it(view):
    page = view.show("messages", "Time and pointer", topic="orders")
    held: list[Any] = []
    shown = page.get_by_text("It has looked up to")

    def hold(route):
        held.append(route)

    def find(text):
        page.get_by_label("Find").fill(text)
        page.keyboard.press("Enter")
        wait_until(lambda: page.wait_for_timeout(20) or held, 20)

    def answer():
        with page.expect_response("**/search?*"):
            held.pop().fulfill(json={"rows": [], "looked_until": "1", "is_end": False})
        page.wait_for_timeout(100)

    page.route("**/search?*", hold)
    find("first")
    page.get_by_role("button", name="Tail").click()
    page.get_by_text("tailing").wait_for()
    answer()
    assert shown.count() == 0
    page.get_by_role("button", name="Tail").click()
    page.get_by_text("tailing").wait_for(state="detached")
    find("second")
    answer()
    shown.wait_for()
    page.get_by_role("button", name="Look on").click()
    wait_until(lambda: page.wait_for_timeout(20) or held, 20)
    page.get_by_role("button", name="Tail").click()
    page.get_by_text("tailing").wait_for()
    answer()  # the tab would fail if it added this to what is there no more
    assert shown.count() == 0


def test_a_stream_on_which_nothing_comes_is_opened_anew_and_the_page_says_so(view):
    """As where a network was changed: here nothing comes, and time goes on by the test."""
    page = view.page
    streams: list[Any] = []

    def hold(route):
        streams.append(route)

    page.clock.install()
    view.show("messages", "Time and pointer", topic="orders")
    page.route("**/api/stream*", hold)
    page.keyboard.press("t")
    wait_until(lambda: page.wait_for_timeout(20) or streams, 20)
    page.get_by_text("tailing").wait_for()
    page.clock.fast_forward(46_000)
    page.get_by_text("not of now").wait_for()
    wait_until(lambda: page.wait_for_timeout(20) or len(streams) > 1, 20)
    streams[-1].continue_()
    page.get_by_text("not of now").wait_for(state="detached")
    page.unroute_all(behavior="ignoreErrors")


def test_one_gets_about_by_keys_alone(view):
    page = view.show("overview", "All is well")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.get_by_role("heading", name="Topics").wait_for()
    page.get_by_role("row").filter(has_text="orders").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("order")
    page.get_by_text("1 to 1 of 1").wait_for()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="orders").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Shortcuts").wait_for()


def test_the_focus_is_where_it_was_behind_a_dialog(view):
    page = view.show("topics", "orders")
    page.get_by_role("button", name="Create…").focus()
    for close in ("Cancel", "Escape"):
        page.keyboard.press("Enter")
        page.get_by_label("Name").fill("not made")
        if close == "Escape":
            page.keyboard.press(close)
        else:
            page.get_by_role("button", name=close).click()
        page.get_by_role("dialog").wait_for(state="detached")
        page.wait_for_function("document.activeElement.innerText === 'Create…'")


def test_what_is_typed_into_a_field_is_no_key_that_leads_elsewhere(view):
    page = view.show("topics", "orders")
    page.keyboard.press("g")
    page.get_by_label("Filter").click()
    page.keyboard.type("orders")
    page.get_by_text("1 to 1 of 1").wait_for()
    assert page.get_by_label("Filter").input_value() == "orders"


def test_rules_that_one_writes_are_there_behind_the_next_login(view):
    page = view.show("dryrun", "Nothing is put")
    page.get_by_label("Rules, as in a file .toml").fill("name = 'long work'")
    page.route(
        "**/api/session", lambda route: route.fulfill(json={"login": "token", "level": "none"})
    )
    page.evaluate("dispatchEvent(new Event('poe-logged-out'))")
    page.get_by_label("URL or token").wait_for()
    page.unroute("**/api/session")
    page.evaluate("dispatchEvent(new Event('focus'))")
    field = page.get_by_label("Rules, as in a file .toml")
    field.wait_for()
    assert field.input_value() == "name = 'long work'"


def test_a_topic_is_created_and_deleted_by_its_typed_name(view):
    page = view.show("topics", "orders")
    page.get_by_role("button", name="Create…").click()
    page.get_by_label("Name").fill("made here")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("link", name="made here").click()
    page.get_by_role("button", name="Delete…").click()
    delete = page.get_by_role("dialog").get_by_role("button", name="Delete")
    assert delete.is_disabled()
    page.get_by_label("Type made here to go on").fill("made here")
    delete.click()
    page.get_by_role("heading", name="Topics").wait_for()
    page.get_by_role("link", name="made here").wait_for(state="detached")


def test_a_trim_leaves_the_newest_message_of_each_partition(view):
    node = view.console.node
    node.create_topic("trimmed", partitions=3)
    for number in (0, 2):
        for _ in range(3):
            node.put(f"trimmed-{number}", b"x")
    page = view.show("topic", "trimmed-2", topic="trimmed")
    page.get_by_role("button", name="Trim…").click()
    dialog = page.get_by_role("dialog", name="Trim")
    dialog.get_by_label("Type trimmed to go on").fill("trimmed")
    with page.expect_response("**/topics/trimmed-2/trim"):
        dialog.get_by_role("button", name="Trim").click()
    dialog.wait_for(state="detached")
    told = view.console.http.get("topics/trimmed").json()["partitions"]
    assert [each["messages"] for each in told] == [3, 0, 3]


def test_hostile_names_stay_text(view):
    view.console.node.put(HOSTILE.encode(), b"x")
    page = view.show("topics", filter="onerror")
    page.get_by_role("link", name="<img src=x onerror=alert(1)>").click()
    page.get_by_text("Partitions").first.wait_for()
    assert page.locator("img").count() == 0


def test_the_choice_of_theme_and_times_is_kept(view):
    page = view.show("topics", "orders")
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("button", name="Times in UTC").click()
    page.reload()
    page.get_by_text("UTC").first.wait_for()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_time_is_typed_as_times_are_shown_and_what_is_none_is_told(view):
    page = view.show("messages", "Time and pointer", topic="orders")
    zone = {"timezoneId": "America/New_York"}
    view.context.new_cdp_session(page).send("Emulation.setTimezoneOverride", zone)

    def type_time(text):
        field = page.get_by_label("From a time or pointer")
        field.fill(text)
        field.press("Enter")

    for text, shown_us in (
        ("2026-01-01T00:00:00", 1767243600000000),
        ("2026-01-02", 1767330000000000),
        ("2026-01-01 00:00:00.5Z", 1767225600500000),
        ("UTC", None),
        ("2026-01-01T00:00:00", 1767225600000000),
        ("2026-01-02", 1767312000000000),
        ("2026-01-01 01:00", 1767229200000000),
        ("2026-01-01T00:00:00-05:00", 1767243600000000),
    ):
        if shown_us is None:
            page.get_by_role("button", name="Times in UTC").click()
            continue
        type_time(text)
        page.wait_for_url(f"**at={shown_us}*")
    type_time("yesterday")
    page.get_by_role("alert").get_by_text("parameter at is 'yesterday'").wait_for()
    type_time("")
    page.get_by_role("alert").wait_for(state="detached")
    assert page.get_by_role("button", name="Newest").get_attribute("aria-pressed") == "true"


def test_what_is_typed_right_behind_a_jump_stays(view):
    """Who types fast has typed before the browser draws the place that was asked for."""
    page = view.show("messages", "Time and pointer", topic="orders")
    left = page.get_by_label("From a time or pointer").evaluate(
        """async (field) => {
            const tell = (kind) => field.dispatchEvent(new Event(kind, { bubbles: true }));
            field.value = "2026-01-01";
            tell("input");
            tell("change");
            await new Promise((done) => queueMicrotask(() => queueMicrotask(done)));
            field.value = "2026-01-02";
            tell("input");
            await new Promise((done) => setTimeout(done, 300));
            return field.value;
        }"""
    )
    assert left == "2026-01-02"


def test_what_is_typed_stays_while_messages_come(view):
    view.console.node.put("typed", b"old")
    page = tailing(view, "typed")
    field = page.get_by_label("From a time or pointer")
    field.fill("2026-01")
    view.console.node.put("typed", b"came meanwhile")
    page.get_by_text("came meanwhile").wait_for()
    assert field.input_value() == "2026-01"


def test_a_dump_is_of_all_messages(view):
    page = view.show("messages", "Time and pointer", topic="orders")
    link = page.get_by_role("link", name="Dump as JSONL").get_attribute("href")
    assert "limit=10000000" in link


def test_the_printed_url_leads_on_who_is_logged_in_already(view):
    page = view.page
    page.goto(f"{view.console.base}/console/login#{view.console.token}")
    page.get_by_text("All is well").wait_for()
    assert page.url == f"{view.console.base}/console/overview"


def test_a_node_that_goes_and_comes_back_is_told(chromium, tmp_path):
    with Node(dir=tmp_path, port=0) as node:
        assert node.address is not None
        port = node.address[1]
        console = Shown(node)
        with console:
            view = View(chromium, console)
            page = view.show("overview", "All is well")
            node.stop()
            page.get_by_text("the node is away").wait_for()
            with Node(dir=tmp_path, port=port):
                page.get_by_text("the node is away").wait_for(state="detached")
            view.close()


def test_a_tail_misses_nothing_while_the_node_is_away(chromium, tmp_path):
    with Node(dir=tmp_path, port=0) as node:
        assert node.address is not None
        port = node.address[1]
        node.put("t", b"old")
        with Shown(node) as console:
            view = View(chromium, console)
            page = view.show("messages", "old", topic="t")
            page.keyboard.press("t")
            page.get_by_text("tailing").wait_for()
            wait_until(lambda: page.locator("tr.message").count() == 0, 20)
            wait_until(lambda: _puts_are_seen(node, page), 20)
            node.stop()
            with Node(dir=tmp_path, port=port) as again:
                for number in range(20):
                    again.put("t", b"while nobody looked %d" % number)
                page.get_by_text("while nobody looked 19").wait_for()
            shown = page.locator("tr.message td:last-child").all_inner_texts()
            missed = [each for each in shown if "nobody" in each]
            assert missed == [f"while nobody looked {number}" for number in range(20)]
            view.close()


def _puts_are_seen(node, page, topic="t", message=b"is it there?"):
    node.put(topic, message)
    page.wait_for_timeout(100)
    return page.locator("tr.message", has_text=message.decode()).count() > 0


def test_a_tab_that_stays_open_takes_no_more_memory(view):
    seconds = float(os.environ.get("HEAP_S", "10"))
    page = view.show("tree", "scrubber")
    page.evaluate("history.pushState(null, '', '/console/overview')")
    page.evaluate("dispatchEvent(new Event('poe-place'))")
    page.get_by_role("heading", name="Overview").wait_for()
    session = view.context.new_cdp_session(page)

    def used():
        session.send("HeapProfiler.collectGarbage")
        return session.send("Runtime.getHeapUsage")["usedSize"]

    page.wait_for_timeout(6000)
    before = used()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        view.console.node.put("live", b"x" * 1000)
        page.wait_for_timeout(50)
    assert used() - before < 2 << 20


def test_a_rebound_name_and_a_post_of_another_site_are_refused(chromium, console):
    playwright_browser = chromium.browser_type.launch(
        executable_path=chromium_path(),
        args=["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"],
    )
    port = console.base.rpartition(":")[2]
    page = playwright_browser.new_page()
    reply = page.goto(f"http://evil.example:{port}/console/api/session")
    assert reply.status == 421
    page.goto("about:blank")
    page.set_content(f'<form method="post" action="{console.base}/console/api/logout"></form>')
    with page.expect_response("**/logout") as refused:
        page.evaluate("document.forms[0].submit()")
    assert refused.value.status == 403
    playwright_browser.close()


def chromium_path():
    from tests.browser.conftest import CHROMIUM  # noqa: PLC0415

    return CHROMIUM
