"""Pipeline files, without Spark: what they may say, and what one is told of a wrong one."""

import re
import sys
from pathlib import Path

import pytest

from poe.errors import ConfigError, InvalidPipeline
from poe.security.token import make_token
from poe.spark import Pipeline
from poe.spark.pipeline import load_pipeline
from poe.spark.pipeline.definitions import Source, Step, Watermark

WHOLE = '''
name = "ssh"
intensity = 5

[config]
spark.sql.shuffle.partitions = 2
"spark.ui.enabled" = false

[sources.ssh]
topic = "ssh"
options = { startingPointer = "earliest", maxMessagesPerTrigger = 1000 }
watermark = ["timestamp", "10 minutes"]

[sources.ssh.parse]
format = "regex"
pattern = 'from (?P<address>[0-9.]+) port (?P<port>\\d+)'
schema = "port INT"

[steps.per_window]
sql = """
    SELECT window(timestamp, '10 minutes') AS time, address, count(*) AS n
    FROM ssh GROUP BY 1, 2
"""

[steps.alerts]
takes = "per_window"
function = "functions.py:alerts"

[sinks.table]
takes = "per_window"
format = "parquet"
path = "table"
partition_by = "address"
mode = "update"

[sinks.alerts]
takes = "alerts"
topic = "alerts"
trigger = "10 seconds"
'''

FUNCTIONS = """
def alerts(per_window):
    return per_window.where("n > 100")
"""

PYTHON = """
from poe.spark import Pipeline

def twice(s):
    return s.union(s)

def build():
    pipeline = Pipeline("ssh", checkpoint="state")
    pipeline.source("s", topic="t")
    pipeline.step("twice", function=twice)
    pipeline.sink("k", takes="twice", topic="u")
    return pipeline
"""

SOURCE = '[sources.s]\ntopic = "t"\n'
SINK = '[sinks.k]\ntakes = "s"\nformat = "console"\n'


@pytest.fixture
def write(tmp_path):
    """Write a file and return what is told of it."""

    def told(text, name="p.toml"):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(InvalidPipeline) as raised:
            load_pipeline(path)
        return str(raised.value).removeprefix(str(path)).lstrip(",: ")

    return told


def test_a_toml_file_says_all_that_a_pipeline_can_be(tmp_path):
    (tmp_path / "ssh.toml").write_text(WHOLE)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    pipeline = load_pipeline(tmp_path / "ssh.toml")
    assert (pipeline.name, pipeline.intensity, pipeline.period_s) == ("ssh", 5, 300)
    assert pipeline.config == {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    assert pipeline.checkpoint == str(tmp_path / "ssh.checkpoints")
    source = pipeline.tables["ssh"]
    assert isinstance(source, Source)
    assert source.options == {"startingPointer": "earliest", "maxMessagesPerTrigger": "1000"}
    assert source.watermark == Watermark(column="timestamp", delay="10 minutes")
    assert source.parse is not None
    assert source.parse.groups() == (
        "from ([0-9.]+) port (\\d+)",
        {"address": 1, "port": 2},
    )
    needed = pipeline.needed_by(pipeline.sinks["alerts"])
    assert [table.name for table in needed] == ["ssh", "per_window", "alerts"]
    assert pipeline.sinks["table"].partition_by == ("address",)
    assert pipeline.sinks["table"].mode == "update"
    assert pipeline.sinks["alerts"].trigger == "10 seconds"


def test_sql_takes_the_tables_that_its_text_names():
    pipeline = Pipeline("p")
    for name in ("left_side", "right_side", "other"):
        pipeline.source(name, topic=name)
    pipeline.step("joined", sql="SELECT * FROM left_side JOIN right_side USING (key)")
    pipeline.sink("out", takes="joined", format="console")
    pipeline.check()
    needed = [table.name for table in pipeline.needed_by(pipeline.sinks["out"])]
    assert sorted(needed[:2]) == ["left_side", "right_side"]
    assert needed[2:] == ["joined"]


@pytest.mark.parametrize("name", ["build()", "pipeline"])
def test_a_python_file_holds_a_pipeline_or_a_function_that_builds_it(tmp_path, name):
    (tmp_path / "p.py").write_text(PYTHON if name == "build()" else PYTHON + "p = build()\n")
    pipeline = load_pipeline(tmp_path / "p.py")
    assert pipeline.checkpoint == str(tmp_path / "state")
    assert [each.name for each in pipeline.needed_by(pipeline.sinks["k"])] == ["s", "twice"]
    # So that executors, which do not have the file, get its functions by value.
    twice = pipeline.tables["twice"]
    assert isinstance(twice, Step)
    assert getattr(twice.function, "__module__", "") not in sys.modules


def test_a_wrong_toml_file_is_told_with_line_and_way_out(write):
    assert write("[sources.s\n").startswith("is no TOML: Expected ']'")
    assert "at line 1" in write("[sources.s\n")
    assert write('nam = "x"\n').startswith("line 1: nam: is not known; use name, checkpoint,")
    assert write("\n[sink.k]\n").startswith("line 2: sink: is not known; use name, checkpoint,")
    assert write(SOURCE + 'topik = "u"\n' + SINK).startswith(
        "line 3: sources.s.topik: is not known; use topic, format, path, options,"
    )
    assert write(SOURCE + SINK.replace('"s"', '"z"')) == (
        "line 4: sinks.k.takes: names 'z', which is not there; use s"
    )
    assert write(SOURCE + SINK.replace('format = "console"', "mode = 1")) == (
        "line 5: sinks.k.mode: is 1; use text"
    )
    assert write(SOURCE + SINK.replace('format = "console"\n', "")) == (
        "line 3: sinks.k: has none of them; use one of topic, format or function"
    )
    assert write(SOURCE) == "sinks: are missing; without one nothing happens"
    assert write("intensity = -1\n" + SOURCE + SINK) == (
        "line 1: intensity: is -1; use a whole number, 0 or more"
    )
    assert write('[sources."a b"]\ntopic = "t"\n').startswith("line 1: sources.a b: is no name;")


@pytest.mark.parametrize("written", ["5", "[5]", "{ a = 1 }"])
def test_modules_are_a_path_or_a_list_of_paths(tmp_path, write, written):
    told = write(f"py_files = {written}\n" + SOURCE + SINK)
    assert told.startswith("line 1: py_files: is ")
    assert told.endswith("; use a path or a list of paths")
    (tmp_path / "p.toml").write_text('py_files = "steps.py"\n' + SOURCE + SINK)
    assert load_pipeline(tmp_path / "p.toml").py_files == [str(tmp_path / "steps.py")]


@pytest.mark.parametrize(
    ("parse", "told"),
    [
        ('{ format = "xml" }', "format: is 'xml'; use json, csv, regex, msgpack"),
        ('{ format = "json" }', 'schema: is missing; json needs one, as in "address STRING,'),
        ('{ format = "regex", pattern = "(" }', "pattern: is no regex: missing )"),
        ('{ format = "regex", pattern = "a(b)" }', "pattern: names no field; use groups such as"),
        ('{ format = "json", schema = "a INT", options = { x = [1] } }', "options.x: is [1]; use"),
        ('{ format = "json", schema = "a INT", pattern = "(?P<a>b)" }', "pattern: goes with regex"),
        ('{ format = "msgpack", schema = "a INT", options = { x = 1 } }', "options: go with json "),
    ],
)
def test_wrong_parsing_is_told_with_its_key(write, parse, told):
    assert write(f"{SOURCE}parse = {parse}\n{SINK}").startswith(f"line 3: sources.s.parse.{told}")


@pytest.mark.parametrize(
    ("source", "sink", "told"),
    [
        (
            "options = { maxMesagesPerTrigger = 9 }",
            'topic = "u"',
            "line 3: sources.s.options.maxMesagesPerTrigger: is not known; use one of ",
        ),
        (
            '[sources.s.options]\nStartingPointer = "newest"',
            'topic = "u"',
            "line 4: sources.s.options.StartingPointer: is 'newest'; use earliest, latest, 0 to ",
        ),
        (
            "options = { endingPointer = 9 }",
            'topic = "u"',
            "line 3: sources.s.options.endingPointer: is not known; use one of ",
        ),
        (
            'path = "data"\noptions = { port = 5556 }',
            'topic = "u"',
            "line 3: sources.s.path: is 'data'; use either the options of a server, or path",
        ),
        (
            'options = { topics = "t,u" }',
            'topic = "u"',
            "line 2: sources.s.topic: is 'topic, topics'; use exactly one of topic, topics and ",
        ),
        (
            "",
            'topic = "u"\noptions = { tpoic = "u" }',
            "line 8: sinks.k.options.tpoic: is not known; use one of caFile, certificateFile, ",
        ),
        (
            "",
            'topic = "u"\noptions = { producerId = "me", epoch = 1 }',
            "line 8: sinks.k.options.producerId: is 'me'; use it with batch writes only; ",
        ),
        (
            "",
            'topic = "u"\noptions = { mode = "append" }',
            "line 8: sinks.k.options.mode: is not known; use one of caFile, certificateFile, ",
        ),
        (
            "",
            'topic = "u"\nmode = "update"',
            "line 8: sinks.k.mode: is 'update'; use append: topics only grow",
        ),
        (
            "",
            'topic = "u"\npartition_by = "key"',
            "line 8: sinks.k.partition_by: goes with a format of files only",
        ),
    ],
)  # fmt: skip
def test_options_of_topics_are_checked_before_anything_runs(write, source, sink, told):
    assert write(f'{SOURCE}{source}\n\n[sinks.k]\ntakes = "s"\n{sink}\n').startswith(told)


def test_the_server_of_a_pipeline_is_checked_before_anything_runs(write, tmp_path):
    rest = SOURCE + SINK
    assert write('[server]\nurl = "http://h"\n' + rest).startswith(
        "line 2: server.url: is 'http://h'; use poe://host:port"
    )
    assert write('server = { url = "poe://h", Port = 1 }\n' + rest) == (
        "line 1: server.Port: is 1; use either url, or host and port"
    )
    assert write("[server]\nprot = 1\n" + rest).startswith(
        "line 2: server.prot: is not known; use one of caFile, certificateFile, host, keyFile, "
    )
    assert write("server = 1\n" + rest).startswith("line 1: server: is 1; use a table")
    text = "from poe.spark import Pipeline\np = Pipeline('p', server='poe://h')\n"
    assert write(text, "p.py").startswith("line 2: server: is 'poe://h'; use a table of options")
    (tmp_path / "p.toml").write_text('[server]\nurl = "poe://h:77"\n' + rest)
    assert load_pipeline(tmp_path / "p.toml").server == {"url": "poe://h:77"}


def test_files_that_get_into_a_server_are_looked_at_beside_the_pipeline(write, tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    (tmp_path / "token").write_text("no token")
    server = '[server]\nurl = "poes://h"\n'
    assert write(server + 'tokenFile = "none"\n' + SOURCE + SINK).startswith(
        f"line 3: server.tokenFile: is '{tmp_path}/none': cannot be read (No such file"
    )
    assert write(server + 'caFile = "ca.pem"\n' + SOURCE + SINK).startswith(
        f"line 3: server.caFile: is '{tmp_path}/ca.pem': it holds no certificate"
    )
    options = 'options = { url = "poes://h", tokenFile = "token" }\n'
    assert write(SOURCE + options + SINK) == (
        f"line 3: sources.s.options.tokenFile: is '{tmp_path}/token': this is no whole token"
    )
    sink = '[sinks.k]\ntakes = "s"\ntopic = "u"\n'
    assert write(SOURCE + sink + options.replace("tokenFile", "TokenFile")).startswith(
        f"line 6: sinks.k.options.TokenFile: is '{tmp_path}/token'"
    )


def test_a_secret_in_a_pipeline_is_refused_unseen_with_its_line(write):
    secret, _ = make_token("of-a-test")
    for key in ("token", "password", "tokenFile"):
        told = write(f'{SOURCE}options = {{ {key} = "{secret}" }}\n{SINK}')
        assert told.startswith(f"line 3: sources.s.options.{key}: is '(hidden)'; use ")
        assert secret not in told
        told = write(f'[server]\n{key} = "{secret}"\n{SOURCE}{SINK}')
        assert told.startswith(f"line 2: server.{key}: is '(hidden)'; use ")
        assert secret not in told


def test_a_python_file_is_told_the_line_that_has_a_wrong_option(write):
    text = "from poe.spark import Pipeline\np = Pipeline('p')\n"
    told = write(text + "p.source('s', topic='t', options={'tpoic': 1})\n", "p.py")
    assert told.startswith("line 3: sources.s.options.tpoic: is not known; use one of ")
    assert told.endswith("did you mean topic?")


def test_options_of_other_formats_are_spark_s_matter(tmp_path):
    source = '[sources.s]\nformat = "rate"\noptions = { rowsPerSecond = 5 }\n'
    (tmp_path / "p.toml").write_text(source + SINK + "options = { numRows = 3 }\n")
    assert load_pipeline(tmp_path / "p.toml").tables.keys() == {"s"}


@pytest.mark.parametrize("name", ["s", "S"])
def test_tables_whose_names_are_one_to_sql_are_refused(write, name):
    step = f'[steps.{name}]\nsql = "SELECT * FROM s"\ntakes = "s"\n'
    assert write(SOURCE + step + SINK) == (
        f"line 3: steps.{name}: has the name of another source or step; give it one of its own"
    )


def test_steps_that_go_round_in_a_circle_are_told(write):
    steps = '[steps.a]\nsql = "SELECT * FROM b"\n[steps.b]\nsql = "SELECT * FROM a"\n'
    told = write(SOURCE + steps + SINK.replace('"s"', '"a"'))
    assert "goes round in a circle: " in told
    assert told.startswith(("line 3: steps.a", "line 5: steps.b"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\ny =\n", "line 2: is no Python: invalid syntax"),
        ("x = 1\nx.y\n", "line 2: AttributeError: 'int' object has no attribute 'y'"),
        ("x = 1\n", "holds 0 pipelines; assign one poe.spark.Pipeline to a name, or return it"),
        (
            "def build():\n    return 1\n",
            "build(): returns int; let it return a poe.spark.Pipeline",
        ),
        (
            "from pyspark.sql.functions import udf\n@udf('int')\ndef f(x):\n    return x\n",
            "line 2: needs Spark, which is not started yet; write a type as StringType() instead",
        ),
        (
            "from poe.spark.pipeline import Pipeline\np = Pipeline('p')\np.source('s', topic=1)\n",
            "line 3: sources.s.topic: is 1; use text",
        ),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
    ],
)
def test_a_wrong_python_file_is_told_with_its_line(write, text, told):
    assert write(text, "p.py").startswith(told)


def test_options_beside_a_function_are_refused(write, tmp_path):
    (tmp_path / "f.py").write_text("def f(rows, number):\n    pass\n")
    sink = '[sinks.k]\ntakes = "s"\nfunction = "f.py:f"\noptions = { topic = "u" }\n'
    assert write(SOURCE + sink).startswith("line 6: sinks.k.options: go with topic or format;")


def test_a_function_that_is_not_there_is_told(write, tmp_path):
    (tmp_path / "f.py").write_text("x = 1\n")
    step = '[steps.a]\nfunction = "f.py:missing"\ntakes = "s"\n'
    assert write(SOURCE + step + SINK).startswith(
        "line 4: steps.a.function: is 'f.py:missing', where no function is; use"
    )


def test_a_file_that_cannot_be_read_is_told(tmp_path, write):
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        load_pipeline(tmp_path / "none.toml")
    assert write("", "p.yaml") == "is no pipeline; use a file .toml or .py"


def test_the_files_of_the_document_are_pipelines(tmp_path):
    document = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    for language, name in (("toml", "ssh.toml"), ("python", "ssh.py")):
        (block,) = re.findall(rf"^```{language}\n(.*?)^```", document, re.DOTALL | re.MULTILINE)
        (tmp_path / name).write_text(block)
        assert load_pipeline(tmp_path / name).name == "ssh"
