"""A Spark session that knows topics, on a laptop or on a cluster."""

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no type hints
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from poe.errors import ConfigError
from poe.spark.data_source import PoeDataSource
from poe.spark.reason import reason_of

if TYPE_CHECKING:  # it needs packages that only clients of Spark Connect have
    from pyspark.sql.connect.session import SparkSession as ConnectSession

T = TypeVar("T")

_PACKAGE = Path(__file__).parent.parent
_LOOPBACK = "127.0.0.1"


def session(app_name: str = "poe", master: str = "local[2]", **config: str) -> SparkSession:
    """Return a session with the data source `poe`, the one that runs or a new one.

    Executors run the interpreter that runs here. Where they are processes of their own they get
    this very `poe`; what it needs (numpy, pyarrow, msgpack, xxhash) has to be installed there.

    Args:
        app_name: name of the application.
        master: where it runs, in Spark's words: `local[2]`, `local-cluster[2,1,1024]`, `spark://…`.
        config: Spark's own options, as in `**{"spark.ui.enabled": "false"}`.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(app_name).master(master)
    is_here = master.startswith("local")
    # It lets a read have the option filterPushdown, and does nothing by itself.
    settings = {"spark.sql.python.filterPushdown.enabled": "true"}
    if is_here:
        # Nobody else has to reach this driver and its executors, so nobody else can.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    for key, value in (settings | config).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    running_on = spark.sparkContext.master or "local"
    if running_on != "local" and not running_on.startswith("local["):
        spark.sparkContext.addPyFile(str(_zipped_package()))
    register(spark)
    return spark


def started_session(app_name: str, master: str = "local[2]", **config: str) -> SparkSession:
    """Return a session for a command, as `session`.

    Raises:
        ConfigError: Spark does not start.
    """
    try:
        return session(app_name, master, **config)
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        msg = f"Spark does not start ({reason_of(error)}); it needs Java 17 or later, and a master"
        raise ConfigError(msg) from error


def apart_from_interrupts(work: Callable[[], T]) -> T:
    """Return what some work with Spark returns, which is left as it is when an interrupt comes.

    In the midst of a question to Spark one brings a traceback for each answer that is missing then;
    where it comes while Spark starts, its Java process would stay for ever. And the handler of
    SIGINT stays: in the main thread Spark puts one of its own, which asks for the end of all jobs.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            result.set_exception(error)

    Thread(target=run, name="poe-spark", daemon=True).start()
    return result.result()


def register(spark: "SparkSession | ConnectSession") -> None:
    """Register the data source `poe` with a session of your own; `session` has done so.

    Unlike `spark.dataSource.register` it lets several streams start at the same time. Each start
    changes, in the stream's own thread, the environment that Spark keeps for the data source.
    Spark would keep it in a map that two threads must not change: once they have, no task of the
    session can be read again (java.io.OptionalDataException).

    A session of Spark Connect may be given, too; `poe` has to be installed where its server and
    executors run.
    """
    if not isinstance(spark, SparkSession):
        # Spark Connect: the session is a client, and the map is the server's matter.
        spark.dataSource.register(PoeDataSource)
        return
    context = spark.sparkContext
    environment = context.environment
    assert context._jvm is not None  # noqa: SLF001 - there is no public way to it
    context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(environment)  # noqa: SLF001
    try:
        spark.dataSource.register(PoeDataSource)
    finally:
        context.environment = environment


@cache
def _zipped_package() -> Path:
    """Write `poe` into a file that Spark can hand out; it stays until this process ends.

    There is one for all sessions: a context that has a file takes none from elsewhere of its name.
    """
    folder = Path(tempfile.mkdtemp(prefix="poe-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "poe.zip"
    try:
        with zipfile.PyZipFile(str(path), "w") as archive:
            archive.writepy(str(_PACKAGE))
    except OSError:
        # It compiles what is not yet, beside the source: where another user has installed that, it
        # is for executors to compile it.
        with zipfile.ZipFile(path, "w") as archive:
            for source in _PACKAGE.rglob("*.py"):
                archive.write(source, source.relative_to(_PACKAGE.parent))
    return path
