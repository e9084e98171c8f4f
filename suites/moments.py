"""When the layout of a state is looked at."""

from meshproof.observing.seen import Unseen


def moments(observation, trained=False):
    """The layouts of the state and when they were seen; if any was not, it is the last: a fault of others comes
    first."""
    found = [(observation.initialisation.layouts, "after init"), (observation.start.layouts, "before training")]
    if trained:
        found.append((observation.training.layouts, "after training"))
    return sorted(found, key=lambda moment: isinstance(moment[0].state_bytes, Unseen))
