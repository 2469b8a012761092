"""Under `make test` the outer make's flags are in the environment, where a make that a test starts
would follow them: it would also print which folder it enters."""

import os


def without_outer_make() -> dict[str, str]:
    """The environment for a make of one's own."""
    return {key: value for key, value in os.environ.items()
            if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEFILES")}
