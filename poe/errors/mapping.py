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
