"""Every error travels: as a value, through pickle, with its sentence."""

import inspect
import pickle

import pytest

from poe.errors import ChildStartFailed
from tests import error_table

CLASSES = error_table.classes()


def test_codes_are_never_shared():
    codes = [kind.code for kind in CLASSES]
    assert len(codes) == len(set(codes))


def test_an_error_survives_pickling_with_its_attributes():
    error = ChildStartFailed("worker", ("shutdown", 5))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is ChildStartFailed
    assert str(copy) == str(error)
    assert (copy.child_id, copy.reason) == ("worker", ("shutdown", 5))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_can_be_pickled(kind):
    names = [name for name in inspect.signature(kind.__init__).parameters if name != "self"]
    takes_anything = "args" in names
    error = kind("a sentence") if takes_anything else kind(**dict.fromkeys(names, b"seven"))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
