"""The console of a gateway whose clients need tokens: people log in as users of the node."""

import httpx
import pytest

from tests.broker.nodes import connect
from tests.broker.users_file import log_in
from tests.gateway.console.test_cluster import state_of
from tests.gateway.http.front import TIMEOUT_S
from tests.gateway.http.test_bearer import House

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    made = House(tmp_path_factory.mktemp("house"), "--console", "--console-level", "destroy")
    for each in ("alice", "bob"):
        made.users.password(each, PASSWORD)
    made.users.write()
    with made as house:
        yield house


def client(house):
    url = f"http://127.0.0.1:{house.front.port}/console/api/"
    return httpx.Client(base_url=url, timeout=TIMEOUT_S)


def test_a_user_logs_in_and_may_what_the_node_allows_and_no_more(house):
    with client(house) as alice:
        assert alice.get("session").json()["login"] == "user"
        given = {"user": "alice", "password": PASSWORD}
        assert alice.post("login", json=given).status_code == 200
        assert alice.get("session").json()["user"] == "alice"
        assert alice.post("messages/alice.own", json={"value": "x"}).status_code == 200
        refused = alice.post("messages/others", json={"value": "x"})
        assert refused.status_code == 403
        assert alice.get("config").status_code == 403
        assert alice.get("history").json() == {"times_s": [], "series": {}}
        names = [each["name"] for each in alice.get("topics").json()["rows"]]
        assert names == ["alice.own"]
        assert state_of(alice) == {"is_in_cluster": False, "is_told": False}


def test_a_topic_that_a_user_may_not_read_says_so_beside_the_others(house):
    house.node.put("absent", b"x")
    with client(house) as bob:
        assert bob.post("login", json={"user": "bob", "password": PASSWORD}).status_code == 200
        reply = bob.get("instant")
        assert reply.status_code == 200, reply.text
        (row,) = reply.json()["rows"]
        assert (row["name"], row["last"]) == ("absent", None)
        assert "not authorized to read" in row["error"]


@pytest.mark.parametrize(
    "given",
    [
        {"user": "alice", "password": "wrong"},
        {"user": "nobody", "password": PASSWORD},
        {"user": "alice", "password": "\0"},
    ],
)
def test_a_wrong_password_is_refused(house, given):
    with client(house) as stranger:
        reply = stranger.post("login", json=given)
        assert reply.status_code == 401, reply.text
        assert stranger.get("topics").status_code == 401


def test_without_a_name_or_a_password_nobody_is_asked(house):
    with client(house) as stranger:
        assert stranger.post("login", json={"user": "", "password": ""}).status_code == 400


def test_the_one_time_token_is_no_way_in_there(house):
    with client(house) as stranger:
        assert stranger.post("login", json={"token": "x"}).status_code == 400


def test_a_wrong_password_is_told_as_one_however_late_the_node_answers(tmp_path):
    patience = "--read-timeout-s", "0.3"
    with House(tmp_path, "--console", *patience) as house, client(house) as stranger:
        reply = stranger.post("login", json={"user": "alice", "password": "wrong"})
    assert reply.status_code == 401, reply.text


def test_a_stranger_is_not_told_where_a_node_is_that_cannot_be_asked(tmp_path):
    with House(tmp_path, "--console") as house, client(house) as stranger:
        _, port = house.node.address
        house.node.stop()
        reply = stranger.post("login", json={"user": "alice", "password": PASSWORD})
        assert reply.status_code == 503, reply.text
        assert str(port) not in reply.text
        told = f"a user cannot log in: cannot reach a server at 127.0.0.1:{port} "
        house.front.read_until(told.encode(), pipe=house.front.process.stderr)


def test_who_has_too_many_connections_is_told_so(tmp_path):
    made = House(tmp_path, "--console")
    made.users.password("alice", PASSWORD)
    made.users.quota("alice", connections=1)
    made.users.write()
    with made as house, connect(house.node) as there, client(house) as alice:
        log_in(there, "alice", PASSWORD)
        reply = alice.post("login", json={"user": "alice", "password": PASSWORD})
    assert reply.status_code == 503, reply.text
    assert "limit connections of 1 is reached" in reply.text


def test_whoever_is_a_user_no_more_is_logged_out_and_not_tried_again_and_again(tmp_path):
    made = House(tmp_path, "--console")
    made.users.password("alice", PASSWORD)
    made.users.write()
    views = "&".join(f"view=tail:alice.{number}" for number in range(20))
    with made as house, client(house) as alice:
        given = {"user": "alice", "password": PASSWORD}
        assert alice.post("login", json=given).status_code == 200
        with alice.stream("GET", f"stream?{views}") as stream:
            told = stream.iter_text()
            next(told)
            house.users.remove("alice")
            house.users.write()
            house.node.control("reload")
            for _ in told:
                pass  # until it ends
        assert alice.get("session").json()["user"] is None
        assert alice.get("topics").status_code == 401
        assert house.node.control("security")["authentication_failed_count"] <= 4
        with house.as_user("bob") as other:
            assert other.get("/topics").status_code == 200
