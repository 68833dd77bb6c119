"""scripts/bench: measure, and write the tables.

Each system runs alone, started fresh, and the rounds go through the systems in turn (every second round backwards), so
that what changes on the machine meanwhile hits all of them alike.
"""

import signal
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import click

from scripts.benchmarks import audit as audits
from scripts.benchmarks import (
    audit_ledger_table,
    audit_table,
    client,
    clients,
    containers,
    containers_table,
    failover,
    failover_etcd,
    failover_etcd_table,
    failover_groups,
    failover_table,
    growth,
    ha,
    ha_table,
    http_cost,
    observe_table,
    roles,
    roles_table,
    spark,
    spark_table,
    table,
    where,
    where_table,
)
from scripts.benchmarks import produce as produces
from scripts.benchmarks import store as stores
from scripts.benchmarks.ack_levels import AckBench
from scripts.benchmarks.audit_ledger import AuditLedgerBench
from scripts.benchmarks.audit_steps import TASKS, master
from scripts.benchmarks.batches import BATCH
from scripts.benchmarks.clients import ClientsBench
from scripts.benchmarks.idle import IdleLoad
from scripts.benchmarks.load import Load
from scripts.benchmarks.observe import ObserveBench
from scripts.benchmarks.report import (
    Row,
    all_of,
    new_report,
    out_option,
    read_begun,
    record,
    rounds_option,
    say,
)
from scripts.benchmarks.store_directory import BODY_SIZE
from scripts.benchmarks.store_restarts import BURST
from scripts.benchmarks.store_steps import SCALES
from scripts.benchmarks.systems import QUEUES
from tests.support.process_group.jars import VERSION_5

GIB, MIB = 1 << 30, 1 << 20


@click.group()
def main() -> None:
    """Benchmarks of twinlog beside the real RocketMQ."""


@main.command()
@rounds_option(3, "How often each system is measured.")
@click.option("--seconds", default=10, show_default=True, help="Length of one measurement.")
@click.option("--first-warm-up", default=30, show_default=True, help="Seconds of load on a system just started.")
@click.option("--warm-up", default=5, show_default=True, help="Seconds of load before each measurement.")
@click.option("--threads", multiple=True, type=int, default=(64, 1), show_default=True, help="Client threads.")
@click.option("--body", default=1024, show_default=True, help="Bytes of a message.")
@click.option("--batch", default=1, show_default=True, help="Messages of one send; several are measured as `batches`.")
@click.option("--slaves", default=1, show_default=True, help="Slaves of every master, RocketMQ's and ours.")
@click.option("--only", multiple=True, type=click.Choice(produces.KINDS), help="Measure these systems alone.")
@click.option(
    "--program",
    "programs",
    multiple=True,
    type=click.Choice(tuple(produces.PROGRAMS)),
    default=("ours",),
    show_default=True,
    help="Clients: ours, with headers in JSON; the same with RocketMQ's binary headers; RocketMQ's own program.",
)
@click.option(
    "--example",
    type=click.Path(exists=True, path_type=Path),
    help="rocketmq-example-4.9.7.jar, of RocketMQ's release, for its own program.",
)
@out_option("produce")
def produce(
    rounds: int,
    seconds: int,
    first_warm_up: int,
    warm_up: int,
    threads: tuple[int, ...],
    body: int,
    batch: int,
    slaves: int,
    only: tuple[str, ...],
    programs: tuple[str, ...],
    example: Path | None,
    out: Path | None,
) -> None:
    """Measure sync sends: rate, latency and CPU time, at several numbers of client threads."""
    load = Load(
        threads=threads, first_warm_up_s=first_warm_up, warm_up_s=warm_up, seconds=seconds, body_size=body, batch=batch
    )
    bench = produces.ProduceBench(
        rounds=rounds, candidates=produces.chosen(slaves, only, batch), load=load, programs=programs, example=example
    )
    setup: dict[str, Any] = {
        "body_bytes": load.body_size,
        "queues": QUEUES,
        "slaves": slaves,
        "seconds": seconds,
        "first_warm_up_s": first_warm_up,
        "warm_up_s": warm_up,
    }
    if batch > 1 and "rocketmq" in programs:
        raise click.UsageError(
            "RocketMQ's own program sends one message at a time: leave out --batch, or --program rocketmq"
        )
    if "rocketmq" in programs and example is None:
        raise click.UsageError(
            "RocketMQ's own program is in no jar of Maven's: name rocketmq-example-4.9.7.jar by --example"
        )
    name = "produce"
    if programs != ("ours",):
        name, setup["programs"] = "produce-programs", programs
    if batch > 1:
        name, setup["batch"] = "batches", batch
    record(name, setup, bench.rows(), produces.line, out)


@main.command()
@click.option("--quick", is_flag=True, help="A small log, to see that it works: the numbers mean nothing.")
@click.option(
    "--repeats", default=3, show_default=True, help="How often each is measured, but for the start without queues."
)
@click.option("--only", multiple=True, type=click.Choice(stores.SYSTEMS), help="Measure these systems alone.")
@click.option(
    "--part", multiple=True, type=click.Choice(stores.PARTS), help="Measure the store alone, or brokers' restarts."
)
@click.option("--cold/--no-cold", default=None, help="Also with nothing cached: as root. Default: not with --quick.")
@out_option("store")
def store(
    quick: bool, repeats: int, only: tuple[str, ...], part: tuple[str, ...], cold: bool | None, out: Path | None
) -> None:
    """Measure the store: append, scan, rebuild, restarts, memory. At most 15 minutes; needs 12 GiB in $TMPDIR."""
    name = "quick" if quick else "full"
    bench = stores.StoreBench(
        scale_name=name,
        systems=tuple(system for system in stores.SYSTEMS if system in (only or stores.SYSTEMS)),
        parts=part or stores.PARTS,
        repeats=repeats,
        cold=not quick if cold is None else cold,
    )
    setup = {"scale": name, "body_bytes": BODY_SIZE, "queues": SCALES[name].queues, "burst": BURST, "repeats": repeats}
    record("store", setup, bench.rows(), _stored_line, out)


def _stored_line(row: Row) -> str:
    numbers = {key: round(value, 3) for key, value in row.items() if not isinstance(value, str)}
    return f"{row['system']:9} {row['measure']:38} {numbers}"


@main.command("ha")
@click.option("--mib", default=2048, show_default=True, help="Length of the log that a slave catches up with.")
@click.option("--body", "bodies", multiple=True, type=int, default=(1024, 8192), show_default=True, help="Bytes.")
@click.option("--pair", "chosen", multiple=True, help="MASTER/SLAVE, as twinlog/rocketmq. Default: all four.")
@click.option("--part", multiple=True, type=click.Choice(ha.PARTS), help="Measure these alone.")
@rounds_option(1)
@click.option("--seconds", default=10.0, show_default=True, help="Length of a measurement of lag or throughput.")
@click.option("--rate", default=10_000, show_default=True, help="Messages a second, for the lag.")
@click.option("--tls", is_flag=True, help="Measure ours alone, with haTls and without: catching up and lag.")
@out_option("ha or ha-tls")
def replication(
    mib: int,
    bodies: tuple[int, ...],
    chosen: tuple[str, ...],
    part: tuple[str, ...],
    rounds: int,
    seconds: float,
    rate: int,
    tls: bool,
    out: Path | None,
) -> None:
    """Measure slaves: catching up, lag, and what verification costs. Needs 4 times the log in $TMPDIR."""
    bench = ha.HABench(
        log_bytes=mib * MIB,
        body_sizes=bodies,
        pairs=tuple(pair for pair in (ha.TLS_PAIRS if tls else ha.PAIRS) if not chosen or "/".join(pair) in chosen),
        parts=part or (("catch-up", "lag") if tls else ha.PARTS),
        rounds=rounds,
        seconds=seconds,
        messages_per_second=rate,
    )
    setup = {"log_mib": mib, "seconds": seconds, "rate": rate, "rounds": rounds}
    record("ha-tls" if tls else "ha", setup, bench.rows(), ha_table.line, out)


@main.command("roles")
@rounds_option(20, "Switchovers at each rate, and half as many failovers.")
@click.option(
    "--rate", "rates", multiple=True, type=int, default=(1_000, 10_000), show_default=True, help="Messages/s."
)
@click.option("--mib", default=1024, show_default=True, help="Length of the log that is cut, and taken anew.")
@click.option("--part", multiple=True, type=click.Choice(roles.PARTS), help="Measure these alone.")
@out_option("roles")
def role_changes(rounds: int, rates: tuple[int, ...], mib: int, part: tuple[str, ...], out: Path | None) -> None:
    """Measure role changes: how long producers wait, and rewind and reinit. Needs 6 times the log in $TMPDIR."""
    bench = roles.RolesBench(parts=part or roles.PARTS, rounds=rounds, rates=rates, log_bytes=mib * MIB)
    record("roles", {"rounds": rounds, "rates": rates, "log_mib": mib}, bench.rows(), roles_table.line, out)


@main.command("failover")
@click.option("--runs", default=30, show_default=True, help="Of each fault and system.")
@click.option("--their-runs", type=int, help="Of each fault, of RocketMQ's, which take longer. Default: as many.")
@click.option("--only", multiple=True, type=click.Choice(failover_groups.KINDS), help="Measure these systems alone.")
@click.option("--fault", multiple=True, type=click.Choice(failover.FAULTS), help="Measure these alone.")
@click.option(
    "--default-client/--no-default-client", default=True, help="Also Java's client with its 30 s of one route."
)
@click.option(
    "--resume", type=click.Path(exists=True, path_type=Path), help="Go on with raw results, written as they came."
)
@out_option("failover")
def masters_lost(
    runs: int,
    their_runs: int | None,
    only: tuple[str, ...],
    fault: tuple[str, ...],
    default_client: bool,
    resume: Path | None,
    out: Path | None,
) -> None:
    """Measure unattended failovers, beside RocketMQ 5 with controllers: from a lost master to the next SEND_OK. As root."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Disks are unmounted, whoever ends it.
    setup = {"runs": runs, "their_runs": their_runs or runs, **failover.SETUP}
    report = read_begun(resume, "failover") if resume else new_report("failover", setup)
    faults = [each for each in failover.FAULTS if each in (fault or failover.FAULTS)]
    plan = failover.planned(only or failover_groups.KINDS, faults, runs, their_runs, patient=default_client)
    rows = failover.FailoverBench(plan=plan, done=report["results"]).rows()
    record("failover", setup, rows, failover_table.line, resume or out, report)


@main.command("failover-etcd")
@rounds_option(3, "Of each fault and system, and outages of etcd.")
@click.option("--only", multiple=True, type=click.Choice(tuple(failover_etcd.KINDS)), help="Measure these alone.")
@click.option("--part", multiple=True, type=click.Choice(failover_etcd.PARTS), help="Measure these alone.")
@click.option("--fault", multiple=True, type=click.Choice(failover_etcd.FAULTS), help="Measure these alone.")
@click.option("--outage-seconds", default=60.0, show_default=True, help="How long etcd is away.")
@click.option("--notes", default="", help="What the page is to say below its tables.")
@out_option("failover-etcd")
def masters_lost_on_etcd(
    rounds: int,
    only: tuple[str, ...],
    part: tuple[str, ...],
    fault: tuple[str, ...],
    outage_seconds: float,
    notes: str,
    out: Path | None,
) -> None:
    """Measure failovers of groups on etcd, beside RocketMQ 5 and Patroni with PostgreSQL 15, and outages of etcd. As root."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Namespaces are removed, whoever ends it.
    bench = failover_etcd.FailoverEtcdBench(
        kinds=[kind for name, kind in failover_etcd.KINDS.items() if name in (only or failover_etcd.KINDS)],
        parts=part or failover_etcd.PARTS,
        faults=[each for each in failover_etcd.FAULTS if each in (fault or failover_etcd.FAULTS)],
        rounds=rounds,
        outage_seconds=outage_seconds,
    )
    setup = failover_etcd.setup(rounds, bench.kinds, outage_seconds, notes)
    record("failover-etcd", setup, bench.rows(), failover_etcd_table.line, out)


only_option = click.option(
    "--only", multiple=True, type=click.Choice(clients.KINDS), help="Measure these systems alone."
)


def _clients(rounds: int, only: tuple[str, ...]) -> ClientsBench:
    return ClientsBench(rounds=rounds, kinds=tuple(kind for kind in clients.KINDS if kind in (only or clients.KINDS)))


@main.command()
@rounds_option(3, "How often each system is measured.")
@only_option
@click.option("--mib", default=1024, show_default=True, help="Length of the log.")
@click.option("--consumers", multiple=True, type=int, default=(1, 8), show_default=True, help="Push consumers.")
@out_option("consume")
def consume(rounds: int, only: tuple[str, ...], mib: int, consumers: tuple[int, ...], out: Path | None) -> None:
    """Measure how fast push consumers drain a topic, from memory and from the disk. Needs the super-user."""
    setup = {"rounds": rounds, "log_mib": mib, "consumers": consumers}
    record("consume", setup, _clients(rounds, only).consume(mib * MIB, consumers), all_of, out)


@main.command("client")
@rounds_option(3, "How often each client is measured.")
@click.option("--client", "chosen", multiple=True, type=click.Choice(client.CLIENTS), help="Measure these alone.")
@click.option("--part", multiple=True, type=click.Choice(tuple(client.PARTS)), help="Measure these alone.")
@click.option(
    "--broker",
    multiple=True,
    type=click.Choice(client.BROKERS),
    default=("twinlog",),
    show_default=True,
    help="Who takes the messages.",
)
@click.option("--seconds", default=5.0, show_default=True, help="Length of one measurement.")
@click.option("--warm-up", default=4.0, show_default=True, help="Seconds of load before it.")
@click.option("--messages", default=400_000, show_default=True, help="Of the topic that is consumed.")
@click.option(
    "--quick", is_flag=True, help="A second each, in one round, to see that it works: the numbers mean little."
)
@out_option("client")
def client_library(
    rounds: int,
    chosen: tuple[str, ...],
    part: tuple[str, ...],
    broker: tuple[str, ...],
    seconds: float,
    warm_up: float,
    messages: int,
    quick: bool,
    out: Path | None,
) -> None:
    """Measure twinlog.client on asyncio, uvloop and trio, beside Java's client and Python clients that pip fetches."""
    if quick:
        rounds, seconds, warm_up, messages = 1, 1.0, 0.5, 12_800
    bench = client.ClientBench(
        rounds=rounds,
        clients=chosen or client.CLIENTS,
        parts=part or tuple(client.PARTS),
        brokers=broker,
        warm_up_s=warm_up,
        seconds=seconds,
        messages=messages // BATCH * BATCH,
    )
    setup: dict[str, Any] = {"rounds": rounds, "seconds": seconds, "warm_up_s": warm_up, "messages": bench.messages}
    setup |= {"body_bytes": client.BODY_BYTES, "packages": client.PACKAGES}
    setup |= {"loops": {name: version(name) for name in ("anyio", "trio")}}
    record("client", setup, bench.rows(), all_of, out)


@main.command()
@rounds_option(3, "How often each system is measured.")
@only_option
@click.option(
    "--rate", "rates", multiple=True, type=int, default=(1_000, 10_000), show_default=True, help="Messages a second."
)
@click.option(
    "--warm-up",
    "warm_ups",
    multiple=True,
    type=int,
    default=(10, 40),
    show_default=True,
    help="Seconds at a rate before it is measured; of several, it is measured after each.",
)
@click.option("--seconds", default=10, show_default=True, help="Length of one measurement.")
@out_option("latency")
def latency(
    rounds: int,
    only: tuple[str, ...],
    rates: tuple[int, ...],
    warm_ups: tuple[int, ...],
    seconds: int,
    out: Path | None,
) -> None:
    """Measure how long messages take from send to a push consumer's listener."""
    starts = sorted(set(warm_ups))
    if any(after - before < seconds for before, after in pairwise(starts)):
        raise click.UsageError(f"a measurement takes {seconds} s; warm-ups {starts} leave no room for it")
    setup = {"rounds": rounds, "rates": rates, "warm_ups": starts, "seconds": seconds}
    record("latency", setup, _clients(rounds, only).latency(rates, starts, seconds), all_of, out)


@main.command()
@rounds_option(3, "How often each system is measured.")
@only_option
@click.option("--consumers", default=1000, show_default=True, help="Connections.")
@click.option("--pulls", default=2000, show_default=True, help="Held pulls, of all consumers together.")
@click.option("--seconds", default=20.0, show_default=True, help="How long the idle broker is watched.")
@out_option("idle")
def idle(rounds: int, only: tuple[str, ...], consumers: int, pulls: int, seconds: float, out: Path | None) -> None:
    """Measure start, memory, idle CPU and the waking of many consumers that wait."""
    load = IdleLoad(consumers=consumers, pulls=pulls, seconds=seconds)
    setup = {"rounds": rounds, "consumers": consumers, "pulls": pulls, "seconds": seconds}
    record("idle", setup, _clients(rounds, only).idle(load), all_of, out)


@main.command()
@click.option("--gib", default=4, show_default=True, help="Length of each replica's log.")
@click.option(
    "--growth", multiple=True, type=int, default=(1, 2, 4, 8), show_default=True, help="Lengths of a log, in GiB."
)
@rounds_option(3, "How often each is measured, but for the growth: once.")
@click.option("--part", multiple=True, type=click.Choice(audits.PARTS), help="Measure these alone.")
@click.option(
    "--quick", is_flag=True, help="64 MiB instead of each GiB, to see that it works: the numbers mean little."
)
@out_option("audit")
def audit(gib: int, growth: tuple[int, ...], rounds: int, part: tuple[str, ...], quick: bool, out: Path | None) -> None:
    """Measure `twinlog audit` and its tables on Spark. Needs 13 GiB in $TMPDIR, and as much memory for them to stay in."""
    unit = 64 * MIB if quick else GIB
    bench = audits.AuditBench(
        log_bytes=gib * unit,
        log_file_bytes=unit,
        growth=tuple(sorted(set(growth))),
        rounds=rounds,
        parts=part or audits.PARTS,
    )
    setup: dict[str, Any] = {"log_bytes": bench.log_bytes, "log_file_bytes": unit, "rounds": rounds}
    setup |= {"body_bytes": BODY_SIZE, "spark": version("pyspark"), "master": master(TASKS), "tasks": TASKS}
    record("audit", setup, bench.rows(), audit_table.line, out)


@main.command("spark")
@click.option("--mib", default=1024, show_default=True, help="Length of the log, for each size of bodies.")
@click.option("--body", "bodies", multiple=True, type=int, default=(100, 1024, 16384), show_default=True, help="Bytes.")
@click.option("--part", multiple=True, type=click.Choice(spark.PARTS), help="Measure these alone.")
@click.option("--only", multiple=True, type=click.Choice(spark.KINDS), help="Measure these clients alone.")
@click.option("--messages", default=100_000_000, show_default=True, help="Of the backlog, of 100 bytes each.")
@click.option("--system", multiple=True, type=click.Choice(spark.SYSTEMS), help="The backlog of these brokers alone.")
@click.option("--backlog", type=click.Path(path_type=Path), help="Keep the backlog in this directory, for another run.")
@click.option("--threads", default=16, show_default=True, help="Of the producer beside the backlog.")
@click.option("--seconds", default=30, show_default=True, help="Length of one measurement of it.")
@click.option("--warm-up", default=20, show_default=True, help="Seconds of its load before each.")
@rounds_option(3)
@click.option("--quick", is_flag=True, help="A few messages, to see that it works: the numbers mean nothing.")
@click.option(
    "--resume", type=click.Path(exists=True, path_type=Path), help="Go on with raw results, written as they came."
)
@out_option("spark")
def spark_clients(
    mib: int,
    bodies: tuple[int, ...],
    part: tuple[str, ...],
    only: tuple[str, ...],
    messages: int,
    system: tuple[str, ...],
    backlog: Path | None,
    threads: int,
    seconds: int,
    warm_up: int,
    rounds: int,
    quick: bool,
    resume: Path | None,
    out: Path | None,
) -> None:
    """Measure Spark as a client of a running broker.

    With --part backlog alone: what producers notice of it, a page of its own. Needs 35 GiB.
    """
    if quick:
        mib, messages, seconds, warm_up, rounds = 8, 200_000, 2, 2, 1
    cold = spark.ColdReading(
        messages=messages,
        body_bytes=100,
        directory=backlog,
        systems=system or spark.SYSTEMS,
        load=Load(threads=(threads, threads), first_warm_up_s=warm_up, warm_up_s=warm_up, seconds=seconds),
        log_file_bytes=16 * MIB if quick else GIB,
    )
    setup: dict[str, Any] = {
        "mib": mib,
        "messages_max": spark.MESSAGES_MAX,
        "rounds": rounds,
        "backlog_messages": messages,
        "threads": threads,
    }
    setup |= {"seconds": seconds, "warm_up_s": warm_up, "spark": version("pyspark"), "master": spark.MASTER}
    setup |= {"backlog_body_bytes": cold.body_bytes, "backlog_record_bytes": cold.log.record_bytes}
    setup |= {"backlog_master": spark.MASTER_OF_BACKLOG}
    if "backlog" in part and len(part) > 1:
        raise click.UsageError("the backlog has a page of its own: measure --part backlog alone")
    name = "spark-backlog" if part == ("backlog",) else "spark"
    report = read_begun(resume, name) if resume else new_report(name, setup)
    bench = spark.SparkBench(
        rounds=rounds,
        mib=mib,
        bodies=bodies,
        parts=part or spark.CLIENT_PARTS,
        kinds=only or spark.KINDS,
        cold=cold,
        done=list(report["results"]),
    )
    record(name, setup, bench.rows(), spark_table.line, resume or out, report)


@main.command("audit-ledger")
@click.option(
    "--gib", "sizes", multiple=True, type=int, default=(1, 10, 50), show_default=True, help="Length of a log."
)
@click.option(
    "--new",
    "new_mib",
    multiple=True,
    type=int,
    default=(1, 64),
    show_default=True,
    help="MiB that come before a run.",
)
@rounds_option(1)
@click.option(
    "--quick", is_flag=True, help="128 MiB instead of each GiB, to see that it works: the numbers mean little."
)
@out_option("audit-ledger")
def audit_ledger(sizes: tuple[int, ...], new_mib: tuple[int, ...], rounds: int, quick: bool, out: Path | None) -> None:
    """Measure `twinlog audit --incremental`: what a run costs by what is new. Needs 5 GiB in $TMPDIR."""
    unit = 128 * MIB if quick else GIB
    bench = AuditLedgerBench(
        sizes=tuple(size * unit for size in sorted(set(sizes))),
        file_bytes=unit,
        new_bytes=tuple(mib * MIB * unit // GIB for mib in new_mib),
        rounds=rounds,
    )
    setup = {"file_bytes": unit, "rounds": rounds, "body_bytes": BODY_SIZE, "new_mib": new_mib}
    record("audit-ledger", setup, bench.rows(), audit_ledger_table.line, out)


@main.command()
@rounds_option(10, "Pairs of measurements.")
@click.option("--seconds", default=20, show_default=True, help="Length of one measurement.")
@click.option("--warm-up", default=10, show_default=True, help="Seconds of load before each measurement.")
@click.option("--threads", multiple=True, type=int, default=(64,), show_default=True, help="Client threads.")
@click.option("--scrape", default=5, show_default=True, help="Seconds between two scrapes.")
@click.option("--topics", default=1, show_default=True, help="Topics that metrics tell of.")
@out_option("observe")
def observe(
    rounds: int, seconds: int, warm_up: int, threads: tuple[int, ...], scrape: int, topics: int, out: Path | None
) -> None:
    """Measure what metrics, scraping and the dashboard cost a broker. Needs Debian's prometheus."""
    load = Load(threads=threads, first_warm_up_s=warm_up, warm_up_s=0, seconds=seconds)
    setup = {
        "rounds": rounds,
        "seconds": seconds,
        "first_warm_up_s": warm_up,
        "scrape_seconds": scrape,
        "topics": topics,
        "body_bytes": load.body_size,
    }
    bench = ObserveBench(rounds=rounds, load=load, scrape_seconds=scrape, topics=topics)
    rows = record("observe", setup, bench.rows(), observe_table.line, out)
    for number in threads:
        found = observe_table.differences([row for row in rows if row["threads"] == number], "master")
        say(f"{number} threads: observed, the master takes {median(found) * 100:+.2f} % CPU a message")


@main.command()
@rounds_option(8)
@click.option("--seconds", default=15.0, show_default=True, help="How long the idle broker is watched.")
@click.option("--settle", default=5.0, show_default=True, help="Seconds between ready and that.")
@click.option("--scrapes", default=30, show_default=True, help="Scrapes of each case, in each round.")
@click.option("--topics", default=500, show_default=True, help="Topics of the large cases.")
@click.option("--part", multiple=True, type=click.Choice(http_cost.PARTS), help="Measure these alone.")
@out_option("http")
def http(
    rounds: int, seconds: float, settle: float, scrapes: int, topics: int, part: tuple[str, ...], out: Path | None
) -> None:
    """Measure what HTTP costs a broker: start, memory, idle CPU, and a scrape of /metrics."""
    bench = http_cost.HttpBench(
        rounds=rounds,
        parts=part or http_cost.PARTS,
        cases=((1, 1), (topics, 0), (topics, topics)),
        idle_seconds=seconds,
        settle_seconds=settle,
        scrapes=scrapes,
    )
    setup = {
        "rounds": rounds,
        "idle_seconds": seconds,
        "settle_seconds": settle,
        "scrapes": scrapes,
        "queues": http_cost.QUEUES_PER_TOPIC,
    }
    record("http", setup, bench.rows(), all_of, out)


@main.command()
@rounds_option(5, "How often each level is measured.")
@click.option("--messages", default=500, show_default=True, help="Messages of one measurement.")
@click.option("--warm-up", default=200, show_default=True, help="Messages before it.")
@out_option("acks")
def acks(rounds: int, messages: int, warm_up: int, out: Path | None) -> None:
    """Measure how long a lone producer waits at each level of acknowledgement."""
    bench = AckBench(rounds=rounds, messages=messages, warm_up=warm_up)
    record("acks", {"rounds": rounds, "messages": messages, "warm_up": warm_up}, bench.rows(), all_of, out)


@main.command("containers")
@rounds_option(3, "How often each system is measured.")
@click.option(
    "--only", multiple=True, type=click.Choice(tuple(containers.SYSTEMS)), help="Measure these systems alone."
)
@out_option("containers")
def started_for_a_test(rounds: int, only: tuple[str, ...], out: Path | None) -> None:
    """Measure how soon a name server and a broker serve a test, and their memory: as a container, and RocketMQ 5's jars."""
    kinds = [kind for kind in containers.SYSTEMS if kind in (only or containers.SYSTEMS)]
    setup = {"rounds": rounds, "settle": containers.SETTLE_SECONDS, "rocketmq_5": VERSION_5}
    record("containers", setup, containers.rows(rounds, kinds), containers_table.line, out)


@main.command("where")
@rounds_option(3, "How often each system is measured.")
@click.option("--seconds", default=10, show_default=True, help="Length of one measurement.")
@click.option("--first-warm-up", default=20, show_default=True, help="Seconds of load on a system just started.")
@click.option("--warm-up", default=3, show_default=True, help="Seconds of load before each measurement.")
@click.option("--threads", multiple=True, type=int, default=(1, 64), show_default=True, help="Client threads.")
@click.option("--only", multiple=True, type=click.Choice(where.KINDS), help="Measure these systems alone.")
@click.option("--meter", "meters", multiple=True, type=click.Choice(where.METERS), help="Use these meters alone.")
@click.option("--notes", default="", help="A sentence for the page.")
@out_option("where")
def where_time_goes(
    rounds: int,
    seconds: int,
    first_warm_up: int,
    warm_up: int,
    threads: tuple[int, ...],
    only: tuple[str, ...],
    meters: tuple[str, ...],
    notes: str,
    out: Path | None,
) -> None:
    """Measure the way of one message through master and slave: CPU time by step, wake-ups, system calls. As root."""
    kinds, meters = only or where.KINDS, meters or where.METERS
    where.check_tools(meters, kinds)
    load = Load(threads=threads, first_warm_up_s=first_warm_up, warm_up_s=warm_up, seconds=seconds)
    bench = where.WhereBench(subjects=where.subjects(kinds), meters=meters, rounds=rounds, load=load)
    setup = {
        "body_bytes": load.body_size,
        "frame_bytes": where.FRAME_BYTES,
        "queues": QUEUES,
        "rounds": rounds,
        "seconds": seconds,
        "first_warm_up_s": first_warm_up,
        "warm_up_s": warm_up,
        "notes": notes,
    }
    record("where", setup, bench.rows(), where_table.line, out)


@main.command("growth")
@rounds_option(3, "How often each point is measured.")
@click.option(
    "--part", multiple=True, type=click.Choice(tuple(growth.PARTS)), help="What grows. Default: each in turn."
)
@click.option("--up-to", type=int, help="No points above this number.")
@click.option("--only", multiple=True, type=click.Choice(growth.KINDS), help="Measure these systems alone.")
@click.option("--seconds", default=8, show_default=True, help="Length of one measurement.")
@click.option("--first-warm-up", default=10, show_default=True, help="Seconds of load on a system just started.")
@click.option("--warm-up", default=2, show_default=True, help="Seconds of load before the measurement.")
@out_option("growth")
def what_growth_costs(
    rounds: int,
    part: tuple[str, ...],
    up_to: int | None,
    only: tuple[str, ...],
    seconds: int,
    first_warm_up: int,
    warm_up: int,
    out: Path | None,
) -> None:
    """Measure what a message costs with more queues, connections, log, slaves and bytes, beside RocketMQ. 25 minutes a round."""
    load = Load(threads=(), first_warm_up_s=first_warm_up, warm_up_s=warm_up, seconds=seconds)
    points = growth.points(part or tuple(growth.PARTS), up_to)
    bench = growth.GrowthBench(rounds=rounds, kinds=only or growth.KINDS, points=points, load=load)
    setup = {
        "body_bytes": load.body_size,
        "queues": QUEUES,
        "threads": growth.THREADS,
        "threads_of_size": growth.THREADS_OF_SIZE,
        "rounds": rounds,
        "seconds": seconds,
        "first_warm_up_s": first_warm_up,
        "warm_up_s": warm_up,
    }
    name = f"growth-{part[0]}" if part == ("queues",) else "growth"  # That of queues has a page of its own, too.
    record(name, setup, bench.rows(), growth.line, out)


@main.command("table")
@click.argument("raw", required=False, type=click.Path(exists=True, path_type=Path))
def write_table(raw: Path | None) -> None:
    """Generate docs/benchmarks/the pages of docs/benchmarks from raw results (default: the newest of each)."""
    for path in [raw] if raw else table.newest():
        say(f"tables: {table.write(path)}")
    say(f"tables: {table.write_goals()}")


if __name__ == "__main__":
    main(prog_name="scripts/bench")
