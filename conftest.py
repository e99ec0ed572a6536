"""Sets up every test run: Hypothesis profiles, a printed seed, and the real logs as input."""

import faulthandler
import fcntl
import gc
import os
import random
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent
MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder there that is the user's alone
MEMORY_FREE_MIN = 4 << 30
"""What a whole run needs by far."""
RESERVE_MAX_BYTES = 64 << 10
YOUNG_MAX = 50_000
"""Objects that are looked through for garbage at a time, as in mappings: 700 cost an eighth."""
END_S = 60
"""What the end of a process may take behind its last test."""
MARKS_OF_FILE = re.compile(r"^pytestmark = (?:\[[^]]*\]|.*)$", flags=re.MULTILINE)

# A shell starts background jobs with Ctrl-C ignored, and what they start inherits that: commands
# that tests interrupt would then not hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines, nor a look at how fast examples are made: a test's time depends on what else the
# machine does, and a shared machine would turn it into a random failure. pytest-timeout ends a test
# that hangs.
settings.register_profile(
    "dev",
    max_examples=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "ci",
    max_examples=30,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly",
    max_examples=3000,
    stateful_step_count=120,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def _profile() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile(_profile())
    _write_to_memory()
    # A seed of our own, so that the header can name it even when nothing fails.
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(random.randrange(2**32))  # noqa: S311 - no secret


def _write_to_memory() -> None:
    """Have the folders of tests in memory: how fast a disk syncs is nothing that they judge.

    What a real file system does in a power cut is tried by `torture`, which mounts its own.
    PYTEST_DEBUG_TEMPROOT names another place.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_FREE_MIN:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many tests run at a time: for half of their time they wait."""
    return (os.cpu_count() or 1) * 3 // 2


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("--hypothesis-seed")
    return f"hypothesis: profile {_profile()}; repeat with --hypothesis-seed={seed}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file with a mark of which `-m` wants none: some take seconds to import."""
    left_out = re.fullmatch(r"not \w+( and not \w+)*", config.option.markexpr)
    if left_out is None or collection_path.suffix != ".py":
        return None
    marks = MARKS_OF_FILE.search(collection_path.read_text())
    found = set(re.findall(r"mark\.(\w+)", marks[0])) if marks is not None else set()
    return True if found & set(re.findall(r"not (\w+)", left_out[0])) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what must be alone to the front: beside short tests nobody waits long for anybody.

    Then comes what takes long, so that at the end no worker is left with it.
    """
    items.sort(key=lambda item: (not _is_alone(item), not _is_long(item)))


def pytest_collection_finish() -> None:
    """Keep what lives until the end out of each collection of garbage, and have few of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let nothing run beside a test that is marked `alone`, where there are several workers."""
    # Where one is marked the first one is; elsewhere a lock would cost a short test as much again.
    if "PYTEST_XDIST_WORKER" not in os.environ or not _is_alone(item.session.items[0]):
        return (yield)
    with _company(fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH):
        return (yield)


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def _is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) is not None for mark in ("torture", "conformance"))


@contextmanager
def _company(kind: int) -> Iterator[None]:
    """Hold the lock that all workers share; who wants it alone is not overtaken meanwhile."""
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    with ExitStack() as held:
        gate, lock = (
            held.enter_context((folder / name).open("w")) for name in ("tests.gate", "tests.lock")
        )
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(lock, kind)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Let no thread that a failed test has left keep its process for ever."""
    if "PYTEST_XDIST_WORKER" not in os.environ:  # those are ended by who has started them
        faulthandler.dump_traceback_later(END_S, exit=True)


@pytest.fixture(scope="session", autouse=True)
def _last_garbage() -> Iterator[None]:
    """Tell the last test what was left open: behind it nobody hears of a worker's errors."""
    yield
    gc.collect()


@pytest.fixture(scope="session", autouse=True)
def reserve_max_bytes() -> Iterator[int]:
    """Let nodes of this process keep little room in reserve; the value is what they keep elsewhere.

    It is 8 MiB, and in memory they are all written: that was more than half of each start.
    """
    from poe.storage.store import reserve  # noqa: PLC0415 - tests that are not run need none of it

    with pytest.MonkeyPatch.context() as patch:
        shipped = reserve._BYTES_MAX  # noqa: SLF001 - no option of users
        patch.setattr(reserve, "_BYTES_MAX", RESERVE_MAX_BYTES)
        yield shipped


@pytest.fixture(scope="session")
def loghub() -> Path:
    """The folder with real logs; beside the checkout unless LOGHUB names another."""
    default = ROOT.parent / "shared" / "data" / "loghub"
    folder = Path(os.environ.get("LOGHUB", default))
    if not folder.is_dir():
        pytest.skip(f"no real logs in {folder}; LOGHUB=<folder> names them")
    return folder
