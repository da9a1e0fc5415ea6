"""Configurations of other brokers, as policies of this one, with a report of what became of each setting.

:mod:`~headgate_coordinator.imports.words` has the settings of a product, each with our word for it;
each folder reads the files of one.
"""
