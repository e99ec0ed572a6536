"""A server is named by its url, or by host and port; reads and writes have the same options."""

import pytest

from poe.errors import OptionError, UnknownOption
from poe.protocol.server import Server
from poe.spark.read_options import ReadOptions
from poe.spark.server_options import DEFAULT_SERVER, names_server, parse_server
from poe.spark.write_options import WriteOptions

pytestmark = pytest.mark.spark


def test_a_url_host_and_port_or_nothing_name_a_server():
    assert parse_server({}) == DEFAULT_SERVER
    assert parse_server({"URL": "poe://h:77"}) == Server("h", 77)
    assert parse_server({"url": "poe://h"}) == Server("h", 5555)
    assert parse_server({"host": "h"}) == Server("h", 5555)
    assert parse_server({"port": "7"}) == Server("127.0.0.1", 7)


def test_reads_and_writes_have_them():
    options = {"url": "poe://h:77", "topic": "t"}
    assert WriteOptions.parse(options).server == Server("h", 77)
    assert ReadOptions.parse(options, "batch").server == Server("h", 77)
    assert ReadOptions.parse({"topic": "t"}, "batch").server is None
    with pytest.raises(OptionError, match="either the options of a server, or path"):
        ReadOptions.parse({**options, "path": "/data"}, "batch")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"url": "poe://h", "host": "h"}, "'host' is 'h'; use either url, or host and port"),
        ({"url": "poe://h", "port": "1"}, "'port' is 1; use either url, or host and port"),
        ({"url": "poe://a,b"}, "'url' is 'poe://a,b'; use one server"),
        ({"url": "kafka://a"}, "'url' is 'kafka://a'; use one server"),
        ({"url": "h:1"}, "'url' is 'h:1'; use poe://host:port"),
        ({"url": ""}, "'url' is ''; use poe://host:port"),
    ],
)
def test_what_names_no_server_is_refused_with_what_does(written, words):
    for parse in (parse_server, WriteOptions.parse):
        with pytest.raises(OptionError, match=words):
            parse(written)


def test_of_a_server_alone_other_options_are_not_known():
    with pytest.raises(UnknownOption, match="'topic' is not known"):
        parse_server({"topic": "t"})


def test_whether_a_server_is_named_has_no_case():
    assert names_server(["topic", "Host"])
    assert not names_server(["topic", "path"])
