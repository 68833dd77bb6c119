"""Script of a test: two streams that cannot begin, of which it catches the first one's error.

python stopping_driver.py NAMESRV DIRECTORY
"""

import sys

from pyspark.errors import StreamingQueryException

from twinlog.spark import message_of, spark_session


def follow(name_server: str, name: str) -> None:
    """A stream of a topic that is not there, to its end."""
    options = {"nameServer": name_server, "subscribe": "nothing", "checkpointLocation": f"{sys.argv[2]}/{name}"}
    rows = spark.readStream.format("rocketmq").options(**options).load()
    rows.writeStream.format("noop").options(**options).start().awaitTermination()


if __name__ == "__main__":
    spark = spark_session("local[1]", is_brief=True)
    try:
        follow(sys.argv[1], "caught")
    except StreamingQueryException as error:
        print(message_of(error))
    follow("127.0.0.1:1", "not-caught")
