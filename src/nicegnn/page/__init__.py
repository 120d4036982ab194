"""A page in the browser, the same over HTTP, and tools for assistants: what a prediction rests on.

Nothing leaves the machine, and nothing is kept but the latest answers in memory.
"""
