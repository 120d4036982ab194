"""A page in the browser, the same over HTTP, and tools for assistants; nothing is kept."""
