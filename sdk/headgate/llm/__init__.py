"""Limits of calls of language models: :mod:`headgate.llm.langchain` and :mod:`headgate.llm.litellm`."""
