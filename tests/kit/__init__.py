"""The conformance kit: what `docs/conformance.md` states, as a program that tries it on any AMQP 1.0 endpoint.

python -m tests.kit amqp://localhost:5672         tries every row, a line each
"""
