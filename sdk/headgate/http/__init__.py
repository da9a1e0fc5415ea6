"""HTTP is limited on both sides, each over the extension point of its library.

For those who call: :mod:`headgate.http.httpx`, :mod:`headgate.http.requests`, :mod:`headgate.http.aiohttp`. A call
waits until it is admitted, and holds that until its body ends, or is closed. An answer of 429 or 503 with
``Retry-After`` has all hosts wait.

For those who are called: :mod:`headgate.http.asgi` for any ASGI application, :mod:`headgate.http.fastapi` for single
routes. A request that is not admitted gets 429 with the fields that HTTP has for it.

Each imports the library it is for and nothing else, so that only that one is needed.
"""
