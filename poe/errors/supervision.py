"""7xx: child specs and requests to supervisors."""

from poe.errors.root import PoeError
from poe.errors.short_text import short_repr


class SupervisionError(PoeError):
    """A supervisor cannot do what was asked."""

    code = 700


class InvalidChildSpec(SupervisionError):
    """A child spec or a supervisor flag is wrong; the message names the field."""

    code = 701

    def __init__(self, message: str, key: str | tuple[str, ...] = "", value: object = None) -> None:
        self.key = key
        """The field that is wrong; several where they do not fit each other; "" for none."""
        self.value = value
        """What it holds; as many values as `key` has fields."""
        super().__init__(message)


class ChildStartFailed(SupervisionError):
    """A child did not start."""

    code = 702

    def __init__(self, child_id: object, reason: object) -> None:
        self.child_id = child_id
        self.reason = reason
        super().__init__(f"child {short_repr(child_id)} did not start: {short_repr(reason)}")


class IntensityExceeded(SupervisionError):
    """A supervisor restarted more children than its intensity allows, and gave up."""

    code = 703

    def __init__(self, child_id: object, restarts: int, period_s: float) -> None:
        self.child_id = child_id
        self.restarts = restarts
        self.period_s = period_s
        times = "1 restart" if restarts == 1 else f"{restarts} restarts"
        super().__init__(f"child {short_repr(child_id)}: {times} within {period_s} s")


class ChildRequestRefused(SupervisionError):
    """A supervisor does not do what was asked of it for a child in its present state."""

    code = 704

    def __init__(self, child_id: object, why: str, way_out: str, ref: object = None) -> None:
        self.child_id = child_id
        self.why = why
        self.ref = ref
        super().__init__(f"child {short_repr(child_id)}: {why}; {way_out}")


class UnknownRequest(SupervisionError):
    """A supervisor was called with something that is none of its requests."""

    code = 705

    def __init__(self, request_type: str) -> None:
        self.request_type = request_type
        super().__init__(f"a supervisor has no request {request_type}; see poe.supervision")
