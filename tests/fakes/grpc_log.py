"""What grpc leaves behind, and says of it, when streams are broken off."""

import asyncio
import logging

import pytest

#: The tasks of grpc's server, one within the other. What becomes of them is told by tracebacks.
TASKS = {"_schedule_rpc_coro", "_handle_exceptions"}


def tasks_left() -> list[str]:
    names = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
    return [name for name in names if name in TASKS]


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.message
        for record in caplog.records
        if (record.levelno >= logging.ERROR or record.name.startswith("grpc"))
        # Late news for the loop of the test before: grpc has one queue for all loops.
        and "PollerCompletionQueue._handle_events" not in record.message
    ]
