"""How a process ends that has run a command, and has nothing else to do."""

import atexit
import contextlib
import logging
import os
import sys
import threading


def end_process(code: int) -> None:
    """End the process without taking Python apart, which can take longer than a short command does.

    What is registered to be called at the end is called, and what was printed is written. Where
    threads are to be waited for, or what was printed cannot be written, this returns: then Python
    ends as ever, and tells. Where zenoh is loaded nothing is called, or told, any more.
    """
    streams = [each for each in (sys.stdout, sys.stderr) if each is not None]
    if "zenoh" in sys.modules:
        # What it leaves running in threads of its own crashes as Python ends, once in some thousand
        # times, though all is closed by then: the service would be said to have failed.
        logging.shutdown()
        for each in streams:
            with contextlib.suppress(OSError, ValueError):
                each.flush()
        os._exit(code)
    if any(not each.daemon for each in threading.enumerate() if each != threading.main_thread()):
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - as a child of `multiprocessing` does it
    try:
        for each in streams:
            each.flush()
    except (OSError, ValueError):
        return
    os._exit(code)
