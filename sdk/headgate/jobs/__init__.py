"""Jobs are limited: a job that is not admitted goes back to its queue, so that it keeps no worker.

:mod:`headgate.jobs.celery`, :mod:`headgate.jobs.dramatiq` and :mod:`headgate.jobs.taskiq` each import the library they
are for and nothing else. Workers are processes that are forked: :class:`headgate.sync.PerProcess` opens a session in
each.
"""
