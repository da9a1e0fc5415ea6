"""Both sides of HTTP, with the real libraries, a real server and a real Redis."""
