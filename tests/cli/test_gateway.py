"""`poe gateway`: its options, and what is wrong with some. What it serves: tests/gateway/http."""

import pytest

from poe.cli.argument import assignment
from poe.errors import OptionError
from poe.gateway.http import GatewayOptions
from tests.cli.processes import complaint, poe, poe_here
from tests.python_process import environment


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--host", "0.0.0.0"], "loopback address"),
        (["--port", "70000"], "0 to 65535"),
        (["--port", "x"], "a whole number"),
        (["--body-max", "0"], "option '--body-max' is 0; use 1 or more"),
        (["--head-timeout-s", "0"], "more than 0"),
        (["--head-timeout-s", "nan"], "a number"),
        (["--broker", "http://localhost"], "poe://host:port"),
        (["--ca", "ca.pem"], "option '--ca' is 'ca.pem'; use it with a broker at poes://…"),
        (["--producer", "linger_s"], "NAME=VALUE"),
        (["--producer", "lingers=1"], "'lingers' is not known"),
        (["--producer", "linger_s=soon"], "linger_s"),
        (["--log-level", "loud"], "one of debug"),
    ],
)
def test_an_option_that_cannot_be_is_told_with_what_can(arguments, told):
    run = poe_here("gateway", *arguments)
    assert run.returncode == 2, run.stderr
    assert told in complaint(run)


@pytest.mark.slow
def test_a_user_in_the_url_of_the_broker_is_hidden_and_the_options_are_named():
    run = poe_here("gateway", "--port", 0, "--broker", "poe://bob:pencil@127.0.0.1")
    assert run.returncode == 2
    assert "--broker" in complaint(run)
    assert "--token-file" in complaint(run)
    assert "pencil" not in complaint(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("no_such_module:f", "No module named 'no_such_module'"),
        (".edits:f", "TypeError: "),
        ("edits:f", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_function_that_cannot_be_had_is_told_with_why(named, told, tmp_path, monkeypatch):
    (tmp_path / "edits.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    run = poe_here("gateway", "--edit", named)
    assert run.returncode == 2
    assert complaint(run).startswith(f"poe: option '--edit' is {named!r}; use MODULE:FUNCTION of")
    assert told in complaint(run)


@pytest.mark.slow
def test_the_console_names_options_as_they_are_typed():
    run = poe_here("console", "--user", "ann")
    assert run.returncode == 2
    assert complaint(run).startswith("poe: option '--user' is 'ann'; use it together with ")


@pytest.mark.slow
def test_the_help_tells_every_option_with_its_default():
    text = " ".join(poe("gateway", "--help", COLUMNS="400").stdout.decode().split())
    for name in GatewayOptions.__dataclass_fields__:
        assert "--" + name.replace("_", "-") in text
    assert "a greater one is refused with 413. [1 or more] [default: 1048576]" in text


@pytest.mark.slow
def test_it_says_what_is_to_be_installed(tmp_path):
    # A package of the name that cannot be imported, before the one that can.
    hidden = "import importlib.util as u; f = u.find_spec; "
    hidden += "u.find_spec = lambda n, *p: None if n == 'starlette' else f(n, *p)"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    run = poe("gateway", PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}")
    assert run.returncode == 2
    assert "poe-queue[http]" in complaint(run)


def test_addresses_of_others_are_allowed_when_asked_for():
    assert GatewayOptions(host="0.0.0.0", insecure=True).host == "0.0.0.0"
    with pytest.raises(OptionError, match="loopback"):
        GatewayOptions(host="192.0.2.1")


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("linger_s=0.5", "linger_s", 0.5),
        ("envelope=true", "envelope", True),
        ("strategy=custom", "strategy", "custom"),
        ('kafka={"a.b"="c"}', "kafka", {"a.b": "c"}),
        ("x = 'y=z'", "x", "y=z"),
        ("x=", "x", ""),
        (f"x={'1' * 5000}", "x", "1" * 5000),
        (f"x={'[' * 5000}", "x", "[" * 5000),
    ],
)
def test_values_of_the_producer_s_options_are_those_of_toml(text, name, value):
    assert assignment("--producer", text) == (name, value)
