"""Which of a step's metrics a run on one device can judge."""

import numpy as np


def comparable(seen, alone, rounding):
    """The three without the arrays that are of another shape on one device, as a value of each device is; and the paths
    of these. What is `undefined` in the run and on one device is 0 in all."""
    unlike = sorted(path for path in seen.keys() & alone.keys() if are_unlike(seen[path], alone[path]))
    same = seen.keys() & alone.keys() - set(unlike)
    missing = {path: undefined(seen[path]) & undefined(alone[path]) for path in same}
    alike = (
        {path: np.where(missing.get(path, False), 0, of[path]) for path in of if path not in unlike}
        for of in (seen, alone, rounding)
    )
    return *alike, unlike


def are_unlike(one, other):
    """Whether two metrics are arrays of two shapes. (A number beside an array is no healthy pair.)"""
    return np.ndim(one) > 0 and np.ndim(other) > 0 and np.shape(one) != np.shape(other)


def judged(metrics):
    """Metrics with 0 for what is `undefined` in them."""
    return {path: np.where(undefined(value), 0, value) for path, value in metrics.items()}


def undefined(value):
    """Where an array that has numbers has none, as the accuracy of a class without examples; a scalar must be one."""
    missing = np.isnan(value)
    return missing & (np.ndim(value) > 0 and not missing.all())
