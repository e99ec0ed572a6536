"""Mappings: rules that say what becomes of messages, and the programs that carry them out.

A mapping reads topics as a group does, and puts each message where its rules say: onto other
topics, to a function, aside, or nowhere. See `docs/mapping.md`.
"""

from poe.mapping.action import Action, Dead, Drop, Ok, Retry, Stop, To
from poe.mapping.decision import Decisions, Put
from poe.mapping.decorators import Mapping, P
from poe.mapping.document import load
from poe.mapping.message import Columns, Message
from poe.mapping.rule_set import Compiled, RuleSet

__all__ = [
    "Action",
    "Columns",
    "Compiled",
    "Dead",
    "Decisions",
    "Drop",
    "Mapping",
    "Message",
    "Ok",
    "P",
    "Put",
    "Retry",
    "RuleSet",
    "Stop",
    "To",
    "load",
]
