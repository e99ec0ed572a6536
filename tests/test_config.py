"""Options: where they come from, which of them wins, and what is refused."""

import dataclasses
import re
from pathlib import Path

import pytest
from platformdirs import user_data_path

from poe.config import Config, option_choices, option_parts, option_types, parse_option
from poe.errors import OptionError, UnknownOption
from poe.option import allowed
from poe.storage import TopicOptions
from tests.python_process import ROOT


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """No test sees a `poe.toml` or a variable that it did not make."""
    monkeypatch.chdir(tmp_path)


def load(arguments=None, environment=None, toml_path=None):
    return Config.load(arguments or {}, environment or {}, toml_path)


def test_defaults_are_those_of_the_design():
    config = load()
    assert config.dir == user_data_path("poe")
    assert config.as_dict() | {"dir": ""} == {
        "dir": "",
        "check_interval": 0.5,
        "count_limit": 100_000,
        "size_limit": 67_108_864,
        "buffer_count_max": 100,
        "worker_timeout": 1.0,
        "sync_interval": 1.0,
        "read": "flushed",
        "on_corrupt": "close",
        "port": 5555,
        "max_age": None,
        "max_bytes": None,
        "archive_dir": None,
        "host": "127.0.0.1",
        "ack": "flushed",
        "recovery": "point-in-time",
        "verify": "once",
        "scrub_rate": 4 * 1024 * 1024,
        "topics": (),
        "min_free": 128 * 1024 * 1024,
        "allow_network_file_system": False,
        "store_id": None,
        "adopt_folder": False,
        "names": "strict",
        "insecure": False,
        "message_max": 16 * 1024 * 1024,
        "frame_max": 64 * 1024 * 1024,
        "frame_timeout": 10.0,
        "send_timeout": 30.0,
        "put_timeout": 30.0,
        "idle_timeout": 600.0,
        "users": None,
        "acl": None,
        "auth_timeout": 5.0,
        "reload_interval": 10.0,
        "connections_per_address_max": None,
        "topics_max": 100_000,
        "topic_creation_rate": None,
        "auto_create": True,
        "in_flight_max": 256 * 1024 * 1024,
        "connections_max": 10_000,
        "isolation": "none",
        "thespian_port": None,
        "thespian_insecure": False,
        "thespian_token": None,
        "tls_port": None,
        "tls_host": "127.0.0.1",
        "tls_certificate": None,
        "tls_key": None,
        "tls_client_ca": None,
        "tls_client_crl": None,
        "tls_min": "1.3",
        "handshake_timeout": 5.0,
        "unauthenticated_max": 256,
        "unauthenticated_per_address_max": 16,
        "cluster": None,
        "seeds": (),
        "cluster_host": "127.0.0.1",
        "cluster_port": 5557,
        "node_name": None,
        "zone": None,
        "copies": 2,
        "cluster_mode": "peer",
        "cluster_certificate": None,
        "cluster_key": None,
        "cluster_ca": None,
        "cluster_nodes": (),
        "log_engine": None,
        "log_port": None,
        "log_seeds": (),
        "log_bytes_max": 1 << 30,
        "log_credentials": None,
    }


def test_arguments_win_over_environment_over_file_over_default(tmp_path):
    (tmp_path / "poe.toml").write_text("port = 1\ncount_limit = 1\nsize_limit = 1\n")
    config = load({"port": 3}, {"POE_PORT": "2", "POE_COUNT_LIMIT": "2"})
    assert config.listener.port == 3
    assert config.appendix.count_limit == 2
    assert config.appendix.size_limit == 1
    assert config.connection.frame_max == 64 * 1024 * 1024


def test_the_file_may_be_named_by_argument_or_environment(tmp_path):
    (tmp_path / "poe.toml").write_text("port = 1\n")
    (tmp_path / "a.toml").write_text("port = 2\n")
    (tmp_path / "b.toml").write_text("port = 3\n")
    named = {"POE_CONFIG": str(tmp_path / "a.toml")}
    assert load({}, named).listener.port == 2
    assert load({}, named, tmp_path / "b.toml").listener.port == 3


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("POE_PORT", "0", "port", 0),
        ("POE_PORT", "none", "port", None),
        ("POE_MAX_AGE", "3600", "max_age", 3600.0),
        ("POE_MAX_AGE", "Infinity", "max_age", None),
        ("POE_MAX_AGE", "inf", "max_age", None),
        ("POE_THESPIAN_PORT", "none", "thespian_port", None),
        ("POE_INSECURE", "yes", "insecure", True),
        ("POE_INSECURE", "FALSE", "insecure", False),
        ("POE_ACK", "fsync", "ack", "fsync"),
        ("POE_CHECK_INTERVAL", "0.25", "check_interval", 0.25),
    ],
)
def test_text_of_the_environment_becomes_a_value(variable, text, name, value):
    assert load({}, {variable: text}).as_dict()[name] == value


def test_a_folder_may_be_none_wherever_options_may_stand(tmp_path):
    age = {"max_age": 9.0}
    (tmp_path / "poe.toml").write_text('archive_dir = "none"\n')
    assert load(age).registry.archive_dir is None
    assert load(age, {"POE_ARCHIVE_DIR": "None"}).registry.archive_dir is None
    assert load({"archive_dir": None}).registry.archive_dir is None
    named = load(age, {"POE_ARCHIVE_DIR": "/a"})
    assert str(named.registry.archive_dir) == named.as_dict()["archive_dir"] == "/a"
    assert load(named.as_dict()) == named  # as a process of its own is told


def test_a_topic_may_have_an_archive_of_its_own_or_none_wherever_options_may_stand(tmp_path):
    file = tmp_path / "poe.toml"
    file.write_text('[topics.a]\narchive_dir = "/a"\n[topics.b]\narchive_dir = "None"\n')
    expected = (
        TopicOptions(topic="a", archive_dir=Path("/a")),
        TopicOptions(topic="b", archive_dir="none"),
    )
    assert load({"max_age": 9}, {}, file).segment.topics == expected
    text = "a.archive_dir=/a,b.archive_dir=none"
    config = load({"max_age": 9}, {"POE_TOPICS": text})
    assert config.segment.topics == expected
    rows = {each.topic: each.as_row() for each in config.segment.topics}
    assert rows == {"a": {"archive_dir": "/a"}, "b": {"archive_dir": "none"}}
    assert load({"max_age": 9, "topics": rows}) == config


ORDERS = TopicOptions(topic="orders", ack="fsync")
CLICKS = TopicOptions(topic="web.clicks", ack="memory")


def test_topics_have_options_of_their_own_wherever_options_may_stand(tmp_path):
    table = {"orders": {"ack": "fsync"}, "web.clicks": {"ack": "memory"}}
    text = "orders.ack=fsync,web.clicks.ack=memory"
    file = tmp_path / "poe.toml"
    file.write_text('[topics.orders]\nack = "fsync"\n[topics."web.clicks"]\nack = "memory"\n')
    for config in (
        load({"topics": table}),
        load({}, {"POE_TOPICS": text}),
        load({"topics": parse_option("topics", "--topics", text)}),
        load({}, {}, file),
    ):
        assert config.segment.topics == (ORDERS, CLICKS)
    by_topic = load({"topics": table, "message_max": 9}).segment.by_topic()
    assert [(topic, row.ack, row.message_max) for topic, row in by_topic.items()] == [
        (b"orders", "fsync", 9),
        (b"web.clicks", "memory", 9),
    ]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"a": {"ack": "never"}}, "option 'topics.a.ack' is 'never'; use memory or flushed"),
        ({"a": {"acks": "fsync"}}, "option 'topics.a.acks' is 'fsync'; use ack, archive_dir"),
        ({"a": "fsync"}, "option 'topics.a' is 'fsync'; use a table of ack"),
        ({"a": {"archive_dir": ""}}, "option 'topics.a.archive_dir' is ''; use a path or"),
        ({"a": {"archive_dir": 7}}, "option 'topics.a.archive_dir' is 7; use a path or"),
        ({"../a": {"ack": "fsync"}}, "the name of a topic"),
        ({"": {"ack": "fsync"}}, "the name of a topic"),
        ({"a b": {"ack": "fsync"}}, "or set the server's option names to escape"),
        ({"\ud800": {"ack": "fsync"}}, "the name of a topic"),
        ("fsync", "a table for each topic"),
    ],
)
def test_options_of_topics_that_make_no_sense_are_refused_by_name(table, told):
    with pytest.raises(OptionError) as caught:
        load({"topics": table})
    assert told in str(caught.value)


def test_a_topic_with_any_name_may_have_options_where_names_are_escaped():
    config = load({"names": "escape", "topics": {"bücher/neu": {"ack": "fsync"}}})
    assert list(config.segment.by_topic()) == ["bücher/neu".encode()]


@pytest.mark.parametrize("text", ["", "orders=fsync", "orders.ack", "orders.ack=fsync,"])
def test_text_that_names_no_option_of_a_topic_is_refused(text):
    with pytest.raises(OptionError, match=r"NAME\.OPTION=VALUE"):
        load({}, {"POE_TOPICS": text})


def test_a_home_folder_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load({"dir": "~/queue"}).dir == tmp_path / "queue"


def test_whole_numbers_do_where_seconds_are_wanted():
    value = load({"worker_timeout": 2}).appendix.worker_timeout
    assert (type(value), value) == (float, 2.0)


@pytest.mark.parametrize("source", ["argument", "environment", "file"])
def test_an_unknown_name_is_refused_where_it_stands(tmp_path, source):
    (tmp_path / "poe.toml").write_text("prot = 1\n" if source == "file" else "")
    arguments = {"prot": 1} if source == "argument" else {}
    environment = {"POE_PROT": "1"} if source == "environment" else {}
    with pytest.raises(UnknownOption, match=r"is not known; use one of ack, .*port") as caught:
        load(arguments, environment)
    where = {"argument": "prot", "environment": "POE_PROT", "file": "poe.toml: prot"}
    assert caught.value.key == where[source]


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"port": "5555"}, "port"),
        ({"port": 5.5}, "port"),
        ({"port": True}, "port"),
        ({"port": -1}, "port"),
        ({"port": 65536}, "port"),
        ({"host": "0.0.0.0"}, "host"),
        ({"host": None}, "host"),
        ({"insecure": 1}, "insecure"),
        ({"count_limit": 0}, "count_limit"),
        ({"count_limit": None}, "count_limit"),
        ({"size_limit": 2**40}, "size_limit"),
        ({"worker_timeout": 0}, "worker_timeout"),
        ({"worker_timeout": float("nan")}, "worker_timeout"),
        ({"sync_interval": -1.0}, "sync_interval"),
        ({"sync_interval": 0.0, "read": "synced"}, "sync_interval"),
        ({"read": "all"}, "read"),
        ({"on_corrupt": "ignore"}, "on_corrupt"),
        ({"check_interval": "1s"}, "check_interval"),
        ({"check_interval": 10**400}, "check_interval"),
        ({"topics": ("orders",)}, "topics"),
        ({"max_age": 0}, "max_age"),
        ({"max_age": -1.0}, "max_age"),
        ({"ack": "never"}, "ack"),
        ({"ack": b"fsync"}, "ack"),
        ({"buffer_count_max": 0}, "buffer_count_max"),
        ({"message_max": 0}, "message_max"),
        ({"frame_max": 10}, "frame_max"),
        ({"frame_timeout": 0}, "frame_timeout"),
        ({"send_timeout": -1}, "send_timeout"),
        ({"put_timeout": 0}, "put_timeout"),
        ({"idle_timeout": -1}, "idle_timeout"),
        ({"in_flight_max": 65_535}, "in_flight_max"),
        ({"connections_per_address_max": 0}, "connections_per_address_max"),
        ({"topics_max": 0}, "topics_max"),
        ({"topic_creation_rate": 0}, "topic_creation_rate"),
        ({"auto_create": 1}, "auto_create"),
        ({"connections_max": 0}, "connections_max"),
        ({"dir": 5}, "dir"),
    ],
)
def test_a_wrong_value_is_refused_by_name(arguments, key):
    with pytest.raises(OptionError) as caught:
        load(arguments)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"port = ", "readable TOML"),
        (b"\xff", "readable TOML"),
        (b'port = "1"', "a whole number"),
        (b"port = " + b"1" * 5000, "readable TOML"),
        (b"port = " + b"[" * 5000, "readable TOML file .it is nested too deeply"),
        (b'dir = "a\\u0000b"', "use a path"),
    ],
    ids=["cut off", "no UTF-8", "no number", "thousands of digits", "deep", "no path"],
)
def test_a_file_that_makes_no_sense_is_refused_with_its_path(tmp_path, content, told):
    (tmp_path / "poe.toml").write_bytes(content)
    with pytest.raises(OptionError, match=told) as caught:
        load()
    assert "poe.toml" in str(caught.value)


def test_a_named_file_must_exist(tmp_path):
    with pytest.raises(OptionError, match="a TOML file that exists"):
        load({}, {"POE_CONFIG": str(tmp_path / "missing.toml")})


@pytest.mark.parametrize("source", ["argument", "environment", "file"])
def test_an_empty_folder_name_is_not_the_current_folder(tmp_path, source):
    (tmp_path / "poe.toml").write_text('dir = ""\n' if source == "file" else "")
    arguments = {"dir": ""} if source == "argument" else {}
    environment = {"POE_DIR": ""} if source == "environment" else {}
    with pytest.raises(OptionError, match="is ''; use a path"):
        load(arguments, environment)


def test_a_path_with_characters_that_no_file_can_have_is_refused():
    with pytest.raises(OptionError, match=r"is '/a\\ud800'; use a path"):
        load({"dir": "/a\ud800"})


@pytest.mark.parametrize("name", ["dir", "archive_dir", "users", "tls_key"])
def test_the_home_of_a_user_stands_for_itself_in_a_path(name, monkeypatch):
    monkeypatch.setenv("HOME", "/srv/ann")
    given = {"tls_port": 1, "tls_certificate": "c.pem", "max_age": 9, name: "~/poe"}
    value = load(given).as_dict()[name]
    assert str(value) == "/srv/ann/poe"


@pytest.mark.parametrize("name", ["dir", "archive_dir", "users", "topics.a.archive_dir"])
def test_a_path_of_nobodys_home_is_refused(name):
    key, *rest = name.split(".")
    value = {"a": {"archive_dir": "~no-such-user/poe"}} if rest else "~no-such-user/poe"
    with pytest.raises(OptionError, match="is '~no-such-user/poe'; use a path; there is no") as it:
        load({key: value})
    assert it.value.key == name


def _find_no_home(name):
    raise RuntimeError(name)


@pytest.mark.parametrize("find", [_find_no_home, Path("~/.local/share").joinpath])
def test_without_a_home_a_folder_has_to_be_named(find, monkeypatch, tmp_path):
    monkeypatch.setattr("poe.config.user_data_path", find)
    with pytest.raises(OptionError, match="option 'dir' is 'none'; use the path of a folder: this"):
        load()
    assert load({"dir": str(tmp_path)}).dir == tmp_path


@pytest.mark.parametrize("name", ["POE_PORT", "POE_MAX_AGE", "POE_INSECURE", "POE_CONFIG"])
def test_an_empty_variable_is_no_value(name):
    with pytest.raises(OptionError) as caught:
        load({}, {name: ""})
    assert caught.value.key == name


def test_a_node_without_a_port_is_suggested_to_nobody():
    with pytest.raises(OptionError) as caught:
        parse_option("port", "--port", "x")
    assert str(caught.value) == "option '--port' is 'x'; use a whole number"


def test_a_folder_in_place_of_the_file_is_refused(tmp_path):
    with pytest.raises(OptionError, match="readable TOML file"):
        load({}, {}, tmp_path)


def test_every_option_belongs_to_one_class_and_has_choices():
    names = [field.name for part in option_parts() for field in dataclasses.fields(part)]
    assert sorted(["dir", *names]) == sorted(option_types())
    assert all(option_choices(name) for name in option_types())


def test_the_documented_defaults_are_the_real_ones():
    document = (ROOT / "docs" / "configuration.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)` \|[^|]*\| `?([^|`]+)`? \|", document, re.MULTILINE))
    assert documented.pop("dir") == "the user's data folder"
    real = {name: str(value).lower() for name, value in load().as_dict().items()}
    assert documented == {name: value for name, value in real.items() if name != "dir"}


def test_the_documented_units_are_the_real_ones():
    document = (ROOT / "docs" / "configuration.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", document, re.MULTILINE))
    for part in option_parts():
        for name, each in allowed(part).items():
            if each.choices == (True, False):
                assert documented[name] == "true, false", name
            elif each.choices:
                assert documented[name] == ", ".join(f"`{word}`" for word in each.choices), name
            elif each.range is not None:
                assert documented[name] == each.range.unit or each.range.words(is_whole=True), name


def test_an_error_of_text_names_what_the_user_wrote():
    with pytest.raises(OptionError) as caught:
        parse_option("count_limit", "--count-limit", "1k")
    assert str(caught.value) == "option '--count-limit' is '1k'; use a whole number"


def test_a_message_always_fits_into_a_frame():
    assert Config.load({"frame_max": 2000}, {}).segment.message_max == 2000 - 280
    assert Config.load({"frame_max": 2000, "message_max": 1000}, {}).segment.message_max == 1000
    with pytest.raises(OptionError, match="1720 or less, or a greater frame_max: it is 2000"):
        Config.load({"frame_max": 2000, "message_max": 1721}, {})
    with pytest.raises(OptionError, match="frame_max"):
        Config.load({"message_max": 2**30}, {})


@pytest.mark.parametrize(
    ("size_limit", "min_free"), [(1, (64 << 20) + 1), (1 << 40, (64 << 20) + (1 << 30))]
)
def test_a_segment_more_than_64_mib_stays_free_unless_told_otherwise(size_limit, min_free):
    size_limit = min(size_limit, 2**40 - 1)
    assert load({"size_limit": size_limit}).store.min_free == min_free
    assert load({"size_limit": size_limit, "min_free": 0}).store.min_free == 0


@pytest.mark.parametrize("name", ["max_age", "thespian_port", "port"])
@pytest.mark.parametrize("value", ["none", "infinity"])
@pytest.mark.parametrize("source", ["argument", "environment", "file"])
def test_no_limit_is_spelled_alike_everywhere(tmp_path, source, name, value):
    (tmp_path / "poe.toml").write_text(f'{name} = "{value}"\n' if source == "file" else "")
    environment = {f"POE_{name.upper()}": value} if source == "environment" else {}
    config = load({name: value} if source == "argument" else {}, environment)
    assert config.as_dict()[name] is None


def test_no_limit_may_be_a_number_that_is_infinite(tmp_path):
    (tmp_path / "poe.toml").write_text("max_age = inf\n")
    assert load().registry.max_age is None
    assert load({"max_age": float("inf")}).registry.max_age is None


def test_what_an_error_recommends_is_accepted():
    with pytest.raises(OptionError) as caught:
        load({"max_age": "never"})
    assert str(caught.value) == "option 'max_age' is 'never'; use a number or \"none\""


@pytest.mark.parametrize(
    "name", ["worker_timeout", "check_interval", "frame_timeout", "send_timeout", "put_timeout"]
)
def test_a_time_that_never_ends_is_refused_as_infinite(name):
    with pytest.raises(OptionError, match=r"more than 0 \(finite seconds\)"):
        load({name: float("inf")})


def test_an_error_names_the_source_of_a_value_that_is_out_of_range(tmp_path):
    (tmp_path / "poe.toml").write_text("count_limit = 0\n")
    with pytest.raises(OptionError) as caught:
        load()
    assert caught.value.key == "poe.toml: count_limit"
    with pytest.raises(OptionError) as caught:
        load({"count_limit": 1}, {"POE_PORT": "-1"})
    assert caught.value.key == "POE_PORT"
    with pytest.raises(OptionError) as caught:
        load({"count_limit": 1}, {"POE_MESSAGE_MAX": str(2**31)})
    assert caught.value.key == "POE_MESSAGE_MAX"


def test_variables_of_tests_are_no_options():
    assert load({}, {"POE_TEST_SEED": "7"}) == load()
