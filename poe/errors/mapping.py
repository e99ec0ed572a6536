"""Errors of mappings: a wrong file (16x), and messages that a rule cannot be applied to (48x)."""

from poe.errors.broker import BrokerError
from poe.errors.config import ConfigError


class InvalidMapping(ConfigError):
    """A mapping, or the file that holds it, cannot be used."""

    code = 160

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")


class MappingExtraMissing(ConfigError):
    """A mapping asks for what only the extra `mapping` has."""

    code = 161

    def __init__(self, package: str, what: str) -> None:
        self.package = package
        self.what = what
        super().__init__(
            f"{what} needs {package}, which is not installed; "
            "use: pip install '.[mapping]' in a checkout"
        )


class MappingError(BrokerError):
    """A message that a mapping cannot deal with as its rules say."""

    code = 480


class UndecodableMessage(MappingError):
    """A message is not what `decode` says that it is."""

    code = 481

    def __init__(self, decode: str, reason: str) -> None:
        self.decode = decode
        self.reason = reason
        super().__init__(f"the message is no {decode}: {reason}")


class RuleError(MappingError):
    """A rule ended with an error for a message: an expression, a template or a function of it."""

    code = 482

    def __init__(self, rule: str, reason: str) -> None:
        self.rule = rule
        self.reason = reason
        super().__init__(f"rule {rule!r}: {reason}")


class UnknownPlan(MappingError):
    """What a mapping has written down of its next batch is no plan that this version knows."""

    code = 483

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the plan of a batch cannot be read: {reason}; run the version that wrote it, "
            "or set the positions of its group anew: messages may come twice then"
        )


class RulesChanged(MappingError):
    """A batch was planned with other rules than those that are to repeat it."""

    code = 484

    def __init__(self, mapping: str, unit: bytes, planned: bytes, present: bytes) -> None:
        self.mapping = mapping
        self.unit = unit
        self.planned = planned
        self.present = present
        super().__init__(
            f"mapping {mapping!r} was killed in a batch of {unit.decode(errors='replace')} "
            f"that was planned with rules {planned.hex()[:12]}; these are {present.hex()[:12]}: "
            "run it with the earlier file until it has ended in order, or with --may-repeat"
        )


class PlanTooLarge(MappingError):
    """The plan of a batch does not fit into a commit; a smaller batch is tried then."""

    code = 485

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(
            f"a plan takes {size_bytes} bytes, at most {limit_bytes} fit; one message goes onto "
            "too many topics with several partitions each"
        )
