"""How long without movement is a stall: by the user's word, else by the longest quiet period seen so far. Pure.

Whether what does not move is stuck is another question: that is judged from a look.
"""

from __future__ import annotations

_LEAST_S = 60.0
_TIMES = 3
_CREDIBLE_S = 5.0


def tell_quiet(for_s: float, *, rests: bool) -> str:
    """`rests`: nothing at all has moved, of whatever thread or process of it."""
    if rests:
        return (
            f"nothing outside has changed for {for_s:.0f} s: no bytes written, no file grown, no child that ended well"
        )
    return f"nothing outside is known to have been changed by its line of work for {for_s:.0f} s; something of it moves"


class Pace:
    """The quiet periods of one target. `asked_s`: --stall-after. `before_s`: how long it was quiet when we came."""

    def __init__(self, now_s: float, asked_s: float | None = None, before_s: float = 0.0) -> None:
        self.asked_s = asked_s
        self.longest_s = 0.0
        self._since_s = now_s
        self._before_s = before_s

    def note_movement(self, now_s: float) -> float:
        """Returns how long it had been quiet. What was before we came counts where it went on before our eyes."""
        quiet_s = self.quiet_s(now_s)
        before_s = self._before_s if quiet_s >= _CREDIBLE_S else 0.0
        self.longest_s = max(self.longest_s, quiet_s + before_s)
        self._since_s, self._before_s = now_s, 0.0
        return quiet_s

    def begin_again(self, now_s: float) -> None:
        """It was not quiet: only whose movement it was had to be seen."""
        self._since_s = now_s

    def quiet_s(self, now_s: float) -> float:
        """While we watched."""
        return now_s - self._since_s

    @property
    def threshold_s(self) -> float:
        return self.asked_s if self.asked_s is not None else max(_LEAST_S, _TIMES * self.longest_s)

    def is_over(self, now_s: float) -> bool:
        return self.quiet_s(now_s) >= self.threshold_s

    def tell(self) -> str:
        told = f"a stall is {self.threshold_s:.0f} s without movement"
        if self.asked_s is not None:
            return f"{told}, as --stall-after says"
        if self.threshold_s > _LEAST_S:
            return f"{told}: {_TIMES} times the longest quiet period seen"
        return f"{told}, or {_TIMES} times the longest quiet period seen if that is more"
