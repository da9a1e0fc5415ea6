"""Writes a batch of rows to Parquet folders atomically, and once however often it is tried.

Spark's own file sink keeps a list of the files that count, which Spark alone reads. Here every file that is there
counts, for whoever reads them: a batch is written aside first, and its files then move to their places under names that
are the same each time. A file that was written whole is not computed again, so Redis need not have it any more.
"""

from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

STAGING: Final = "_staging"
"""Under the output; names with ``_`` in front are not read as data."""
DONE: Final = "_SUCCESS"


class Published:
    """`Published` adds files to a folder of tables, on a file system that renames.

    They are ``<output>/<table>/date=<day>/<batch>-<n>.parquet``.
    """

    def __init__(self, spark: SparkSession, output: str) -> None:
        self.output = output.rstrip("/")
        jvm: Any = spark._jvm  # noqa: SLF001, Hadoop's file systems are reached no other way
        configuration: Any = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001, nor their settings
        self._path = jvm.org.apache.hadoop.fs.Path
        self._files = self._path(self.output).getFileSystem(configuration)

    def add(self, rows: DataFrame, batch: str) -> None:
        """Write a batch; again after a crash, with the same name, it is there once.

        Args:
            rows: with the columns ``table`` and ``date``, which become folders.
            batch: name of the batch; no other has it.
        """
        staged = f"{self.output}/{STAGING}/{batch}"
        if not self._files.exists(self._path(f"{staged}/{DONE}")):
            rows.write.partitionBy("table", "date").mode("overwrite").parquet(staged)
        self._move(staged, batch)
        for other in self._names(f"{self.output}/{STAGING}"):
            if other != batch:  # this one stays until the next: a batch may be tried again when all of it has moved
                self._files.delete(self._path(f"{self.output}/{STAGING}/{other}"), True)

    def _move(self, staged: str, batch: str) -> None:
        for table in self._folders(staged):
            for date in self._folders(f"{staged}/{table}"):
                source, target = f"{staged}/{table}/{date}", f"{self.output}/{table.removeprefix('table=')}/{date}"
                self._files.mkdirs(self._path(target))
                for name in self._names(source):
                    if not name.startswith((".", "_")):
                        part = name.split("-")[1]  # part-00003-<id>.c000.snappy.parquet
                        place = self._path(f"{target}/{batch}-{part}.parquet")
                        if not self._files.rename(self._path(f"{source}/{name}"), place):
                            raise OSError(f"{source}/{name} could not be renamed to {place}; the next attempt goes on")

    def _folders(self, path: str) -> list[str]:
        return [name for name in self._names(path) if "=" in name]

    def _names(self, path: str) -> list[str]:
        where = self._path(path)
        if not self._files.exists(where):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(where))
