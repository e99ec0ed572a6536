"""The version of Poe, which the build takes from here.

To ask the installed distribution for it would load a megabyte into each server.
"""

VERSION = "0.1.0"
