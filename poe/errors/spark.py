"""8xx: what reading and writing on Spark refuses."""

from poe.errors.root import PoeError, shown


class SparkError(PoeError):
    """A table or a stream of Spark cannot be read or written as it was asked for."""

    code = 800


class SparkMissing(SparkError):
    """Something that Spark needs is not installed."""

    code = 801

    def __init__(self, missing: str) -> None:
        self.missing = missing
        super().__init__(f"there is no Spark here; install {missing}")


class DataLost(SparkError):
    """Messages that were to be read were deleted before: by retention, `trim` or `delete`.

    What an older version has deleted, or a store that was damaged, is not known: then `is_certain`
    is False, and perhaps there were none.
    """

    code = 810

    def __init__(
        self,
        topic: bytes,
        pointer_low: int,
        pointer_high: int | None,
        *,
        is_certain: bool = True,
    ) -> None:
        self.topic = topic
        self.pointer_low = pointer_low
        self.pointer_high = pointer_high
        self.is_certain = is_certain
        what = f"with pointers from {pointer_low} "
        what += "on" if pointer_high is None else f"to {pointer_high}"
        if not is_certain:
            what += ", if there were any,"
        super().__init__(
            f"messages of topic {shown(topic)} {what} were deleted before they were read; keep "
            "them longer (max_age), or set failOnDataLoss=false to go on with what is left"
        )


class RowsRefused(SparkError):
    """The columns of a DataFrame, or one of its rows, cannot be put onto a topic."""

    code = 820
