"""How long sends wait for the disk: what `mqadmin brokerStatus` prints as put times."""

from __future__ import annotations

from bisect import bisect_left

# RocketMQ's ranges, by their upper ends in milliseconds.
_ENDS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
_LABELS = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)
# Steps of a quarter up to ten minutes: percentiles are told as the upper end of a step.
_STEPS = tuple(0.05 * 1.25**number for number in range(74))


class PutTimes:
    """Counts since the start. One call a sync: all that it completed count with the longest wait of them."""

    def __init__(self) -> None:
        self._ranges = [0] * len(_LABELS)
        self._steps = [0] * (len(_STEPS) + 1)
        self.longest_ms = 0

    def add(self, seconds: float, messages: int) -> None:
        """So many messages waited for up to so long."""
        milliseconds = seconds * 1000
        self._ranges[bisect_left(_ENDS, int(milliseconds))] += messages
        self._steps[bisect_left(_STEPS, milliseconds)] += messages
        self.longest_ms = max(self.longest_ms, int(milliseconds))

    def ranges(self, all_messages: int) -> str:
        """``[<=0ms]:2 [0~10ms]:0 ...``; messages that did not have to wait are in the first."""
        counts = list(self._ranges)
        counts[0] += max(all_messages - sum(counts), 0)
        return "".join(f"[{label}]:{count} " for label, count in zip(_LABELS, counts, strict=True))

    def percentile(self, share: float, all_messages: int) -> float:
        """Milliseconds within which this share of the messages was on disk; 0 when they did not wait."""
        counted = sum(self._steps)
        wanted = share * max(all_messages, counted)
        seen = max(all_messages - counted, 0)
        if seen >= wanted:
            return 0.0
        for end, count in zip((*_STEPS, float(self.longest_ms)), self._steps, strict=True):
            seen += count
            if seen >= wanted:
                return end
        return 0.0
