# twinlog's image with Spark and a Java, for executors, and for drivers, masters and workers of a standalone cluster.
# scripts/image --spark builds it: it makes the context, in which nothing has to be fetched any more.
ARG TWINLOG=twinlog:dev
FROM ${TWINLOG}
USER root
COPY . /opt/spark
# The environment finds Spark's packages. What comes from another machine has to run on this base.
RUN ln -s /opt/spark/entry /usr/local/bin/twinlog-spark \
    && echo /opt/spark/packages >"$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/spark.pth" \
    && /opt/spark/java/bin/java -version \
    && python -c 'import pyarrow, pyspark'
ENV SPARK_HOME=/opt/spark/packages/pyspark \
    JAVA_HOME=/opt/spark/java \
    PYSPARK_PYTHON=/opt/twinlog/bin/python \
    SPARK_LOCAL_DIRS=/var/lib/twinlog/local \
    SPARK_MASTER_OPTS=-Dspark.master.rest.enabled=false \
    SPARK_WORKER_DIR=/var/lib/twinlog/work \
    PATH=/opt/twinlog/bin:/opt/spark/packages/pyspark/bin:/opt/spark/java/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER twinlog
ENTRYPOINT ["twinlog-spark"]
CMD ["twinlog", "audit", "--help"]
