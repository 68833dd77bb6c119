"""Members as /v1 lists them."""

MASTER = {
    "name": "broker-a-0",
    "cluster": "C",
    "group": "broker-a",
    "brokerId": 0,
    "address": "127.0.0.1:1",
    "role": "SYNC_MASTER",
    "state": "serving",
    "maxOffset": 1000,
    "flushedOffset": 900,
    "slaves": [{"address": "127.0.0.1:555", "ackOffset": 900, "counted": True, "inSync": True}],
}


SLAVE = {
    **MASTER,
    "name": "broker-a-1",
    "brokerId": 1,
    "address": "127.0.0.1:2",
    "role": "SLAVE",
    "state": "streaming",
    "maxOffset": 900,
    "flushedOffset": 400,
    "slaves": [],
    "master": {"address": "127.0.0.1:1", "localAddress": "127.0.0.1:555"},
}
