"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("poe-queue")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0+unknown"
