"""Say what to do when the Python is too old, before pip says it less clearly."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this file runs on the Python that is too old
    sys.exit(
        "Python 3.11 or newer is needed, this is "
        + sys.version.split()[0]
        + ": make PYTHON=python3.12 serve"
    )
