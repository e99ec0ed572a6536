"""A mapping that is changed while it runs is read again, and again until it is as its files are."""

import pytest

from poe.errors import InvalidMapping
from poe.mapping import Message, load
from poe.mapping.function_file import Answer
from poe.mapping.functions import InProcess
from poe.mapping.rule import Call
from poe.mapping.watch import Watch

HEAD = 'name = "m"\nsource = { topics = ["t"] }\notherwise = "drop"\n'


def calling(*functions):
    return HEAD + "".join(
        f'[[rule]]\nid = "r{number}"\nbody.x = {number}\ncall = "{each}"\n'
        for number, each in enumerate(functions)
    )


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(HEAD)
    return path


def test_what_is_wrong_is_told_once_and_read_again_when_it_is_mended(path):
    watch = Watch(path)
    assert watch() is None
    path.write_text("name = ")
    with pytest.raises(InvalidMapping, match="is no TOML"):
        watch()
    assert watch() is None
    path.write_text(calling())
    assert watch() == load(path)
    assert watch() is None


def test_so_is_a_file_of_functions_that_no_rule_had_before(path):
    functions = path.with_name("f.py")
    watch = Watch(path)
    path.write_text(calling("f.py:f"))
    with pytest.raises(InvalidMapping, match="cannot be read"):
        watch()
    assert watch() is None
    functions.write_text("def f(message")
    with pytest.raises(InvalidMapping, match="is no Python"):
        watch()
    assert watch() is None
    functions.write_text("def f(message): ...")
    assert watch() == load(path)
    assert watch() is None


def test_what_is_written_while_others_are_read_is_read_the_next_time(path):
    first, second = path.with_name("f.py"), path.with_name("g.py")
    path.write_text(calling("f.py:f", "g.py:g"))
    first.write_text("def f(message): ...")
    second.write_text("def g(message): ...")
    watch = Watch(path)
    second.write_text(
        "from pathlib import Path\n"
        "path = Path(__file__).with_name('f.py')\n"
        "if 'new' not in path.read_text():\n"
        "    path.write_text('new = 1\\ndef f(message): ...')\n"
        "def g(message): ...\n"
    )
    assert watch() is not None
    assert watch() == load(path)
    assert watch() is None


def test_so_is_what_is_written_while_it_is_read_first(path):
    path.write_text(calling("f.py:f"))
    other = HEAD.replace("drop", "dead")
    path.with_name("f.py").write_text(
        "from pathlib import Path\n"
        f"Path({str(path)!r}).write_text({other!r})\n"
        "def f(message): ...\n"
    )
    watch = Watch(path)
    assert len(watch.rules.rules) == 1
    assert watch() == load(path)
    assert watch() is None


def importing_in_python(path, module):
    path = path.with_suffix(".py")
    path.write_text(
        "from poe.mapping import Mapping\n"
        f"from {module} import f\n"
        'm = Mapping("m", source={"topics": ["t"]}, otherwise="drop")\n'
        'm.rule("r", call=f, pure=True)\n'
    )
    return path


def importing_for_a_file(path, module):
    path.with_name("f.py").write_text(f"from {module} import f")
    path.write_text(calling("f.py:f"))
    return path


def importing_in_toml(path, module):
    path.write_text(calling(f"{module}:f"))
    return path


@pytest.mark.parametrize(
    "importing", [importing_in_python, importing_in_toml, importing_for_a_file]
)
def test_what_was_imported_stays_as_it_was_and_that_is_told(path, importing, monkeypatch):
    """Rules of a new hash, with functions of before, would have another process repeat a batch
    with others."""
    module = f"imported_by_{importing.__name__}"
    monkeypatch.syspath_prepend(path.parent)
    functions = path.with_name(f"{module}.py")
    functions.write_text("def f(message): return 1")
    path = importing(path, module)
    rules = load(path)
    watch = Watch(path)
    functions.write_text("def f(message): return 23")
    with pytest.raises(InvalidMapping, match="has changed since it was imported"):
        watch()
    assert watch() is None
    assert load(path).compile().hash == rules.compile().hash
    functions.write_text("def f(message): return 1")
    assert watch() == rules


DECORATOR = """
import functools

def plus(function):
    @functools.wraps(function)
    def more(message):
        return (function(message), "more")
    return more
"""


def test_a_function_that_is_decorated_stands_where_it_was_written(path, monkeypatch):
    """Not where the decorator does: it would have the same hash whatever it says."""
    monkeypatch.syspath_prepend(path.parent)
    path.with_name("decorator_of_a_test.py").write_text(DECORATOR)
    path = path.with_name("m.py")

    def written(answer):
        path.write_text(
            "from decorator_of_a_test import plus\n"
            "from poe.mapping import Mapping\n"
            'm = Mapping("m", source={"topics": ["t"]}, otherwise="drop")\n'
            "@m.rule(pure=True, isolation='process')\n"
            "@plus\n"
            f"def f(message): return {answer}\n"
        )
        return load(path)

    first, second = written(1), written(23)
    assert first.compile().hash != second.compile().hash
    [rule] = second.rules
    assert isinstance(rule.fate, Call)
    runner = InProcess(rule.fate)
    assert runner.run([Message("t", 1, b"")]) == [Answer((23, "more"))]
    runner.close()


@pytest.mark.parametrize("made", ["partial(dict, a={})", "answering({})", "Answering({})"])
def test_a_function_that_a_mapping_makes_of_others_is_another_one_when_it_is_made_otherwise(
    path, made, monkeypatch
):
    monkeypatch.syspath_prepend(path.parent)
    path.with_name("made_for_a_test.py").write_text(
        "def answering(answer): return lambda message: answer\n"
        "class Answering:\n"
        "    def __init__(self, answer): self.answer = answer\n"
        "    def __call__(self, message): return self.answer\n"
    )
    path = path.with_name("m.py")
    hashes = []
    for answer in (1, 23):
        path.write_text(
            "from functools import partial\n"
            "from made_for_a_test import Answering, answering\n"
            "from poe.mapping import Mapping\n"
            'm = Mapping("m", source={"topics": ["t"]}, otherwise="drop")\n'
            f'm.rule("r", call={made.format(answer)}, pure=True)\n'
        )
        hashes.append(load(path).compile().hash)
    assert hashes[0] != hashes[1]
