"""effectonce: your agent may retry anything; the effect lands once, or you learn that
nobody can know.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from effectonce._api import *

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The first name that is asked for imports all of them. `effectonce --help` asks for none,
    so it answers at once.
    """
    if not name.startswith("__") or name == "__all__":
        api = importlib.import_module("effectonce._api")
        globals().update(
            {public: getattr(api, public) for public in api.__all__}, __all__=api.__all__
        )
        if name in globals():  # modules are among them
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
