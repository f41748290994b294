"""The tasks of this process and its memory, as /debug/ shows them.

Imported by the first request. Source: cases.md section 10 for why one wants to know.
"""

import asyncio
import gc
import os
import resource
import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any, Final

from agent.status.procfs import parse_rollup

#: The types of which there are most.
TYPES: Final = 25
#: Coroutines, generators and asynchronous generators have these by other names.
FRAMES: Final = ("cr_frame", "gi_frame", "ag_frame")
AWAITED: Final = ("cr_await", "gi_yieldfrom", "ag_await")
KIB: Final = 1024


def tasks() -> dict[str, Any]:
    """Return the tasks of the loop that runs, each with where it waits, the outermost first."""
    found = sorted(asyncio.all_tasks(), key=lambda task: (len(task.get_name()), task.get_name()))
    return {
        "count": len(found),
        "tasks": [
            {
                "name": task.get_name(),
                "coroutine": getattr(task.get_coro(), "__qualname__", str(task.get_coro())),
                "stack": _stack(task.get_coro()),
            }
            for task in found
        ],
    }


def _stack(awaited: object) -> list[str]:
    """Return a line for each frame; Task.get_stack() would end at the first."""
    lines: list[str] = []
    while awaited is not None:
        frame = _first(awaited, FRAMES)
        if isinstance(frame, FrameType):
            lines.append(_line(frame))
        awaited = _first(awaited, AWAITED)
    return lines


def _first(thing: object, names: tuple[str, ...]) -> object:
    return next((value for name in names if (value := getattr(thing, name, None))), None)


def _line(frame: FrameType) -> str:
    code = frame.f_code
    place = "/".join(code.co_filename.rsplit("/", 3)[1:])
    return f"{place}:{frame.f_lineno} in {code.co_qualname}"


async def memory() -> dict[str, Any]:
    """Return sizes in bytes, and which objects there are; it looks at each, beside the loop.

    The types are those of objects made since the start: what was there then is frozen, and only
    counted.
    """
    return await asyncio.to_thread(_memory)


def _memory() -> dict[str, Any]:
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:  # noqa: PTH123 -- pathlib is not in memory
        sizes = parse_rollup(file.read())
    resident = sizes.get("Rss")
    # The kernel keeps the peak by counters that lag behind what it finds when it looks.
    peak = max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB, resident or 0)
    by_type = Counter(type(each).__qualname__ for each in gc.get_objects())
    return {
        "resident_bytes": resident,
        "proportional_bytes": sizes.get("Pss"),
        "anonymous_bytes": sizes.get("Anonymous"),
        "swapped_bytes": sizes.get("Swap"),
        "peak_resident_bytes": peak,
        "objects": {
            "tracked": by_type.total(),
            "frozen": gc.get_freeze_count(),
            "most": dict(by_type.most_common(TYPES)),
        },
        "collections": [each["collections"] for each in gc.get_stats()],
        "modules": len(sys.modules),
        "threads": threading.active_count(),
        "open_files": len(os.listdir("/proc/self/fd")) - 1,  # noqa: PTH208 -- as above
    }
