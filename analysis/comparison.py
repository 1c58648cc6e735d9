"""What a comparison is: the record that findings look at and reports print."""

from __future__ import annotations

import dataclasses

from analysis import pairing
from analysis.compare import Effect, Needed, Verdict
from analysis.metrics import Metric
from analysis.pairing import Pair


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One metric of one treatment against its baseline."""

    pair: Pair
    endpoint: str
    metric: Metric
    baseline_value: float | None
    """Of the merged replicates, as treatment_value."""
    treatment_value: float | None
    effect: Effect
    verdict: Verdict | None
    """Only where this comparison decides: the primary metric, all requests, a pair that primary.at selects."""
    needed: Needed | None
    """Replicates that would decide; only of an inconclusive verdict."""

    @property
    def keys(self) -> tuple[str, str]:
        """Keys of the two treatments."""
        return pairing.key(self.pair.baseline), pairing.key(self.pair.treatment)
