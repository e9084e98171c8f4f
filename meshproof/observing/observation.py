"""Everything that was seen of one case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from meshproof.observing.auxiliary import Auxiliary
from meshproof.observing.draws import Draws
from meshproof.observing.gradients import Gradients
from meshproof.observing.initialisation import Initialisation
from meshproof.observing.probes import Probed
from meshproof.observing.programs import Programs
from meshproof.observing.refusals import Refusals
from meshproof.observing.seen import Facet, Failed, NotExercised, Seen
from meshproof.observing.single_device_truth import SingleDevice
from meshproof.observing.start import Start
from meshproof.observing.training import Training


@dataclass(frozen=True, order=True)
class Warned:
    """A warning: the name of its class, its text, and the file and line that it speaks of, from the import path on."""

    category: str
    message: str
    at: str

    def __str__(self) -> str:
        return f"{self.category}: {self.message}"


@dataclass(frozen=True)
class Observation(Facet):
    """One case, observed once: its facets in the order in which they were observed. What was not seen says why."""

    case: str
    initialisation: Initialisation
    start: Start
    programs: Programs
    single_device: SingleDevice
    auxiliary: Auxiliary
    gradients: Gradients
    training: Training
    lost_examples: Seen[tuple[str, ...]]
    probes: Seen[dict[str, Seen[Probed]]]
    draws: Draws
    refusals: Refusals
    warnings: tuple[Warned, ...]


Outcome: TypeAlias = Observation | Failed | NotExercised
"""What comes of a case."""
