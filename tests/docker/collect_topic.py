"""Script for spark-submit: what a topic has, in small batches by a stream, each as OUT/BATCH.json; then it ends.

collect_topic.py NAME_SERVER TOPIC OUT
"""

import json
import sys
from pathlib import Path
from typing import Any

from twinlog.spark import spark_session


def main(name_server: str, topic: str, out: Path) -> None:
    out.mkdir()

    def keep(batch: Any, number: int) -> None:
        rows = [list(row) for row in batch.select("broker", "queueId", "queueOffset").collect()]
        (out / f"{number}.json.new").write_text(json.dumps(rows) + "\n")
        (out / f"{number}.json.new").rename(out / f"{number}.json")

    spark = spark_session(name="collect")
    options = {"nameServer": name_server, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger="10", minPartitions="2").load()
    writer = rows.writeStream.option("checkpointLocation", f"{out}/checkpoint").trigger(availableNow=True)
    writer.foreachBatch(keep).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
