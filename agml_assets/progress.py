"""Progress of long steps: done, total, rate and time left, in the log and as a bar on a terminal."""

import logging
import sys
import time
from collections.abc import Callable

from tqdm import tqdm

_EVERY_S = 10.0


class Progress:
    """Report how far a long step is; call it with the counts so far.

    Args:
        what: What is counted, such as `images decoded`.
        log: Receives a line every ten seconds and one at the end.
    """

    def __init__(self, what: str, log: Callable[[str], None] | None = None) -> None:
        self._what = what
        self._log = log or logging.getLogger(__name__).info
        self._started = self._last = time.monotonic()
        self._first: tuple[int, float] | None = None
        self._bar: tqdm | None = None

    def __call__(self, done: int, total: int) -> None:
        """Note that `done` of `total` are finished."""
        now = time.monotonic()
        if self._first is None:
            self._first = (done, now)
        if sys.stderr.isatty():
            if self._bar is None:
                self._bar = tqdm(total=total, desc=self._what, unit="", leave=False, initial=done)
            self._bar.update(done - self._bar.n)
        if done >= total:
            if self._bar is not None:
                self._bar.close()
            self._log(f"{self._what}: {done} of {total} in {now - self._started:.1f} s")
        elif now - self._last >= _EVERY_S:
            self._last = now
            # What was there at the first call, and the time until then, say nothing of the rate from now on.
            before, since = self._first
            self._log(describe_progress(self._what, done, total, done - before, now - since))


def show_log() -> None:
    """Show the project's own log on standard error, as plain lines; other libraries' only from warnings on."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for package in ("agml_assets", "resources", "jobs"):
        logging.getLogger(package).setLevel(logging.INFO)


def describe_progress(what: str, done: int, total: int, done_now: int, seconds: float) -> str:
    """Return one line with done, total, rate and time left; what was done before is not in the rate."""
    line = f"{what}: {done} of {total} ({done / max(total, 1):.0%})"
    if done_now <= 0 or seconds <= 0:
        return line
    rate = done_now / seconds
    left = round((total - done) / rate)
    return f"{line}, {rate:.1f} a second, {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
