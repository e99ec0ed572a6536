"""A driver as a process of its own, which copies topic `t` to topic `out` until it is told to end.

    python -m tests.spark.copying_driver URL FOLDER

At a line of input it ends the query, does from the checkpoint what was not known to be done, and
prints how many messages `out` has.
"""

import sys
import threading

from poe.spark import session
from tests.spark.conftest import SESSION_CONFIG
from tests.spark.mortal_driver import FAST_START


def main(url: str, folder: str) -> None:
    spark = session("copying", "local[2]", **{**SESSION_CONFIG, **FAST_START})
    spark.sparkContext.setLogLevel("ERROR")
    messages = spark.readStream.format("poe").options(topic="t", url=url).load().select("message")
    sink = messages.writeStream.format("poe").options(topic="out", url=url)
    sink = sink.option("checkpointLocation", f"{folder}/checkpoint")
    query = sink.start()

    def end() -> None:
        sys.stdin.readline()
        query.stop()

    threading.Thread(target=end, daemon=True).start()
    query.awaitTermination()
    sink.trigger(availableNow=True).start().awaitTermination()
    table = spark.read.format("poe").options(topic="out", url=url).load()
    print(table.count(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
