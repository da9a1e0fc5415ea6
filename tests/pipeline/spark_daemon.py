"""Spark's daemon of Python workers, which imports once what each of its workers would import anew."""

import gc

import pandas as pd  # noqa: F401, as below: for the workers
import pyarrow as pa  # noqa: F401
from pyspark.daemon import manager

import headgate.sync  # noqa: F401
import headgate_pipeline.exchange
import headgate_pipeline.ledger.spark_source  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # each worker looks for garbage after each of its tasks
    manager()
