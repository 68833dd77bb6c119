"""Names of RocketMQ's configuration keys, of 4.9.8 and 5.3.3, by the class that declares them, in rocketmq_keys.txt.

A file for RocketMQ is accepted here: a key that is listed there and is not an option of twinlog has no effect, and only other
keys are unknown. `cluster/config/config_file.py` reads the files.
"""

from pkgutil import get_data


def _by_class(text: str) -> dict[str, frozenset[str]]:
    keys: dict[str, frozenset[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith(" "):
            keys[name] |= frozenset(line.split())
        else:
            name = line
            keys[name] = frozenset()
    return keys


_TEXT = get_data(__package__, "rocketmq_keys.txt")  # Also out of a wheel.
assert _TEXT is not None
_KEYS = _by_class(_TEXT.decode())
STORE = _KEYS["MessageStoreConfig"]
_OF_BOTH = _KEYS["NettyServerConfig"] | _KEYS["NettyClientConfig"] | _KEYS["ControllerConfig"]
BROKER_FILE = _OF_BOTH | _KEYS["BrokerConfig"] | STORE | _KEYS["AuthConfig"] | {"namesrvAddr", "rocketmqHome"}
NAMESRV_FILE = _OF_BOTH | _KEYS["NamesrvConfig"]
