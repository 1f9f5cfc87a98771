"""asyncio's tasks, read from memory."""
