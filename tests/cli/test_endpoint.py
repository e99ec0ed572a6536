"""Which server a command asks: its options, the environment, and what each of them outdoes."""

import pytest

from poe.cli.endpoint import Endpoint, variables
from poe.config import CLIENT_VARIABLES, Config, option_types
from poe.errors import OptionError


def place(given, **environment):
    found = Endpoint.of(given, environment)
    return found.url, found.host, found.port


def test_without_a_word_it_is_the_one_of_this_machine():
    assert place({}) == ("poe://127.0.0.1:5555", "127.0.0.1", 5555)


@pytest.mark.parametrize(
    ("given", "environment", "url"),
    [
        ({"port": "7"}, {"POE_HOST": "there", "POE_URL": "poe://elsewhere"}, "poe://there:7"),
        ({"url": "poe://a:1"}, {"POE_HOST": "there", "POE_URL": "poe://b"}, "poe://a:1"),
        ({}, {"POE_HOST": "there", "POE_PORT": "8", "POE_URL": "poe://b:2"}, "poe://b:2"),
        ({"host": "::1"}, {"POE_PORT": "8"}, "poe://[::1]:8"),
    ],
)
def test_what_is_typed_outdoes_the_environment(given, environment, url):
    assert place(given, **environment)[0] == url


def test_of_several_servers_the_first_is_asked():
    assert place({"url": "poe://a:1,b:2"}) == ("poe://a:1,b:2", "a", 1)


@pytest.mark.parametrize(
    ("given", "environment", "told"),
    [
        (
            {"url": "poe://a", "port": "7"},
            {},
            "option '--port' is '7'; use --url alone, or --host and --port",
        ),
        ({"url": "http://a"}, {}, "option '--url' is 'http://a'; use poe"),
        ({"url": "kafka://a"}, {}, "option '--url' is 'kafka://a'; use poe"),
        ({}, {"POE_URL": "a"}, "option 'POE_URL' is 'a'; use poe"),
        ({}, {"POE_URL": ""}, "option 'POE_URL' is ''; use URL, or unset it"),
        ({"port": "0"}, {}, "option '--port (or POE_PORT)' is '0'; use a whole number, 1 to 65535"),
    ],
)
def test_what_names_no_server_is_refused_with_its_name(given, environment, told):
    with pytest.raises(OptionError) as refused:
        place(given, **environment)
    assert told in str(refused.value)


def test_no_node_takes_the_variable_of_a_client_for_an_option():
    options = {f"POE_{name.upper()}" for name in option_types()}
    assert set(variables()) <= CLIENT_VARIABLES | options
    assert not CLIENT_VARIABLES & options
    Config.load({}, dict.fromkeys(CLIENT_VARIABLES, "x"), "/dev/null")
