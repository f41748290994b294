"""HTTP/1.1 on asyncio and httptools: the one place where own code stands in for a library.

aiohttp would be almost half of the memory of every pod; what the agent needs of it fits in here.
"""
