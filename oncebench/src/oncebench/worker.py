"""One process of a subject. It reads wishes, one line of JSON each, and writes what it was told.

With a wish on its command line it stops, serves that one when it is continued, and ends: so it is
run to be killed.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oncebench import kit
from oncebench.clocks import mend_sleep

TOOLS = "oncebench.tools"
PR_SET_PTRACER = 0x59616D61


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the subject prints goes to its log
    mend_sleep()  # before the subject is imported
    asked = json.loads(sys.argv[1])
    adapter = importlib.import_module(f"oncebench.adapters.{asked['adapter']}")
    setup = kit.Setup(**{**asked["setup"], "folder": Path(asked["setup"]["folder"])})
    os.chdir(setup.folder)
    kit.begin(setup)
    protect = adapter.open(setup)

    @functools.cache
    def tools(name: str) -> Callable[..., Any]:
        protected: Callable[..., Any] = protect(importlib.import_module(f"{TOOLS}.{name}").pay)
        return protected

    def serve(line: dict[str, Any]) -> dict[str, Any]:
        if line.get("maintain"):
            setup.maintain()
            return {"says": "maintained"}
        if "approve" in line:
            return _approved(setup, kit.Wish(**line["approve"]))
        return _reported(adapter, setup, tools, kit.Wish(**line))

    if "once" in asked:
        _wait_for_the_tracer()
        print(json.dumps(serve(asked["once"])), file=answers, flush=True)
        os._exit(0)
    print(json.dumps({"ready": os.getpid()}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line)), default=repr), file=answers, flush=True)
    os._exit(0)


def _wait_for_the_tracer() -> None:
    """Stop. The stage continues it when it has attached its tracer: what comes now is the call."""
    any_process = ctypes.c_ulong(-1)
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, any_process)  # where only parents may trace
    os.kill(os.getpid(), signal.SIGSTOP)


def _reported(
    adapter: Any, setup: kit.Setup, tools: Callable[[str], Callable[..., Any]], wish: kit.Wish
) -> dict[str, Any]:
    kit.now_serving(wish)
    began = time.monotonic()
    try:
        tool = tools(wish.tool)
        with setup.around(wish):
            result = kit.called(tool, wish)
    except Exception as error:  # noqa: BLE001  # whatever it raises is what its caller was told
        traceback.print_exc()
        says = adapter.said(error)
        return {"says": says, "error": f"{type(error).__name__}: {error}"[:300], **_took(began)}
    if isinstance(result, kit.Told):
        return {"says": result.says, **_took(began)}
    return {"says": "done", "result": _shown(result), **_took(began)}


def _approved(setup: kit.Setup, wish: kit.Wish) -> dict[str, Any]:
    """A person said yes. A subject may refuse that: nothing waits any more."""
    try:
        setup.approve(wish)
    except Exception as error:  # noqa: BLE001  # whatever it raises, it did not take the yes
        traceback.print_exc()
        return {"says": "refused", "error": f"{type(error).__name__}: {error}"[:300]}
    return {"says": "approved", "error": ""}


def _shown(result: Any) -> Any:
    try:
        json.dumps(result)
    except (TypeError, ValueError):
        if isinstance(result, dict) and "receipt" in result:
            return {"receipt": result["receipt"]}
        return repr(result)
    return result


def _took(began: float) -> dict[str, float]:
    """How long it took, and when it was told: the stage may read it later. The monotonic clock is
    the same for all processes, and is not shifted.
    """
    told_at = time.monotonic()
    return {"took_s": round(told_at - began, 3), "told_at": told_at}


if __name__ == "__main__":
    main()
