"""Configurations of other brokers are turned into policies here, with a report of what became of each setting.

:mod:`~headgate_coordinator.imports.words` has the settings of a product, each with our word for it;
each folder reads the files of one.
"""
