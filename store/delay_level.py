"""The table of delay levels. Source: ScheduleMessageService.parseDelayLevel, RocketMQ 4.9.8."""

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """`1s 5s 2h` -> delays of levels 1, 2, ... in ms. Raises ValueError, which names the part that is wrong."""
    delays = []
    for part in text.split():
        number, unit = part[:-1], part[-1]
        if not number.isdecimal() or unit not in _UNITS_MS:
            raise ValueError(f"'{part}' is no delay; write a whole number and s, m, h or d, as in 10s")
        delays.append(int(number) * _UNITS_MS[unit])
    return tuple(delays)
