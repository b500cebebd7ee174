"""What the engine tells while it works: notices, warnings, records and progress."""

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

Callback = Callable[[dict[str, Any]], object]


class ThinferWarning(UserWarning):
    """Something without which a result is read wrongly."""


class Told:
    """Hands on what the engine tells to a callback, the log and the terminal."""

    WIDTH = 30

    def __init__(self, what: str, callback: Callback | None = None, progress: bool = False) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be a function of a dict, not {type(callback).__name__}")
        self.what, self.callback, self.shows = what, callback, progress
        self.began, self.shown_at, self.written = time.monotonic(), 0.0, False

    def notice(self, text: str) -> None:
        logging.getLogger("thinfer").info(text)

    def warning(self, text: str) -> None:
        warnings.warn(text, ThinferWarning, stacklevel=4)

    def record(self, told: dict[str, int], record: str) -> None:
        if self.callback is not None:
            self.callback({**told, **json.loads(record)})

    def progress(self, share: float) -> None:
        now = time.monotonic()
        if not self.shows or now < self.shown_at + 0.2:
            return
        self.shown_at, self.written = now, True
        done = round(share * self.WIDTH)
        bar = "█" * done + "·" * (self.WIDTH - done)
        print(f"\r{self.what} {bar} {share:4.0%} {now - self.began:.0f} s", end="", file=sys.stderr)

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        if self.written:
            print(file=sys.stderr)
