"""Two tasks of an asyncio.TaskGroup fail; what reaches the top is an ExceptionGroup.
Its traceback has a margin of its own, and those of its exceptions stand below it (PEP 654)."""

import asyncio
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "load_all",
    "headline": ["ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)", "load_all"],
}
CONTROL = {"kind": "clean", "exit": 0}
VERSIONS = ["3.11", "3.12", "3.13"]


async def load(shard):
    if shard is None:
        raise ValueError("no such shard")


async def load_all(shards):
    async with asyncio.TaskGroup() as group:
        for shard in shards:
            group.create_task(load(shard))


asyncio.run(load_all([1, 2] if "--control" in sys.argv else [None, None]))
