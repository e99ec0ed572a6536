import pytest

from poe.errors import OptionError, UnknownOption
from poe.protocol.server import Server
from poe.spark.write_options import WriteOptions

pytestmark = pytest.mark.spark


def test_options_are_known_in_any_case():
    written = {"HOST": "h", "port": "7", "Topic": "t", "producerid": "p", "EPOCH": "3"}
    expected = WriteOptions(servers=(Server("h", 7),), topic="t", producer_id="p", epoch=3)
    assert WriteOptions.parse(written) == expected
    assert WriteOptions.parse({"retryTimeout": "1.5"}).retry_timeout == 1.5


def test_options_of_spark_itself_are_left_to_it():
    assert WriteOptions.parse({"checkpointLocation": "c", "queryName": "q"}) == WriteOptions()


def test_unknown_option_tells_which_there_are():
    words = "'topics' is not known; use one of caFile, certificateFile, epoch, host, "
    with pytest.raises(UnknownOption, match=words):
        WriteOptions.parse({"topics": "a"})


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"port": "http"}, "1 to 65535"),
        ({"port": "0"}, "1 to 65535"),
        ({"topic": ""}, "not empty"),
        ({"producerId": "p"}, "together"),
        ({"epoch": "0"}, "together"),
        ({"producerId": "p", "epoch": "-1"}, "0 to 4294967295"),
        ({"stagingPrefix": ""}, "as in team-a"),
        ({"stagingPrefix": "a/b"}, "as in team-a"),
        ({"retryTimeout": "-1"}, "0 to 86400"),
        ({"retryTimeout": "nan"}, "0 to 86400"),
    ],
)
def test_value_that_is_not_allowed_tells_what_is(written, words):
    with pytest.raises(OptionError, match=words):
        WriteOptions.parse(written)
