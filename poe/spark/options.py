"""All options of the data source, before it is known what is to be done with them."""

from collections.abc import Mapping

from poe.errors import OptionError
from poe.spark import option_text, read_options, write_options


def check_options(options: Mapping[str, str]) -> None:
    """Refuse what neither a read nor a write could be told.

    Raises:
        UnknownOption: a name that there is not; the error has the nearest that there is.
        OptionError: a value that is not allowed, or they are of a table in Spark's catalog.
    """
    if "provider" in {key.lower() for key in options}:
        raise OptionError(key="USING poe", value="a table", allowed=option_text.NO_TABLE)
    parsers = {**read_options.PARSERS, **write_options.PARSERS}
    names = {name.lower(): name for name in parsers}
    for key, text in options.items():
        name = names.get(key.lower())
        if name is not None:
            parsers[name][1](name, text)
        elif key.lower() not in option_text.OF_SPARK:
            raise option_text.unknown(key, parsers)
