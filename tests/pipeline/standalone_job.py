"""A job for `spark-submit`: URL, namespace and how many rows."""

import sys

from headgate_pipeline.exchange import register
from headgate_pipeline.spark_session import session

url, namespace, count = sys.argv[1:]
spark = session("orders")
register(spark)
rows = spark.range(int(count)).selectExpr("cast(id as string) as body")
rows = rows.repartition(2).sortWithinPartitions("body")  # a task that is tried again must have them in the same order
writing = rows.write.format("headgate").mode("append").option("url", url).option("namespace", namespace)
writing.option("destination", "orders").option("ttl", "2").option("window", "256").save()
spark.stop()
