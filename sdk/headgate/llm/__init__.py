"""Limits of calls of language models: :mod:`headgate.llm.langchain`."""
