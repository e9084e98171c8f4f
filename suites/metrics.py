"""Which of a step's metrics a run on one device can judge."""

import numpy as np


def of_one_shape(seen, alone, rounding):
    """The three without the arrays that are of another shape on one device, as a value of each device is; and the paths
    of these."""
    unlike = sorted(path for path in seen.keys() & alone.keys() if are_unlike(seen[path], alone[path]))
    alike = ({path: of[path] for path in of if path not in unlike} for of in (seen, alone, rounding))
    return *alike, unlike


def are_unlike(one, other):
    """Whether two metrics are arrays of two shapes. (A number beside an array is no healthy pair.)"""
    return np.ndim(one) > 0 and np.ndim(other) > 0 and np.shape(one) != np.shape(other)
