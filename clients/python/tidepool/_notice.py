"""The notice: which devices are to be given back, until when, and why."""
from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Tuple


@dataclass(frozen=True)
class Notice:
    """What is asked, and until when. A notice does not change; an extension is a new object."""

    number: int
    deadline: float  #: ``time.monotonic()`` at which the devices are taken
    devices: Tuple[str, ...]  #: ids, for example ``cpu:0-3``
    ranks: Tuple[int, ...]  #: those that use these devices
    reason: str
    asked: str  #: ``save and give back``, or ``give back N devices``

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, never below 0."""
        return max(0.0, self.deadline - time.monotonic())


def notice_of(record: Mapping[str, Any], seconds_left: Optional[float] = None) -> Notice:
    """Of the record as it comes on the socket or stands in the file."""
    if seconds_left is None:
        seconds_left = float(record["deadline_s"])
    return Notice(number=int(record["notice"]), deadline=time.monotonic() + seconds_left,
                  devices=tuple(str(device) for device in record.get("devices", ())),
                  ranks=tuple(int(rank) for rank in record.get("ranks", ())),
                  reason=str(record.get("reason", "")), asked=str(record.get("asked", "")))


def notice_file(path: Optional[str]) -> Optional[Notice]:
    """The notice in the file, or None: there is none, or it is gone already. The file is as old as
    it is, so the time that is left follows from its absolute deadline."""
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        left = int(record["deadline_boottime_ns"]) / 1e9 - time.clock_gettime(time.CLOCK_BOOTTIME)
        return notice_of(record, left)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
