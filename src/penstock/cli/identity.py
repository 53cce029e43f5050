"""Who the commands are at a broker: flags become what the clients of this process find in the environment."""

from __future__ import annotations

import os
from pathlib import Path


def remember(**flags: str | Path | bool | None) -> None:
    """Keep the flags that were given; one that is not leaves the environment's own word.

    A flag that names an account hides the file of the environment, and the other way round.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    if "credentials" in given:
        os.environ.pop("PENSTOCK_ACCESS_KEY", None)
        os.environ.pop("PENSTOCK_SECRET_KEY", None)
    for name, value in given.items():
        os.environ[f"PENSTOCK_{name.upper()}"] = str(value).lower() if isinstance(value, bool) else str(value)
