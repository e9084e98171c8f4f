"""Faults of released versions within the supported window, each reproduced on CPU, and what shows it.

``python -m tests.regressions`` makes two environments of each fault, of a version that has it and of one that has not,
and fails where the first does not show it, the second does, or a comparison of the two does not name the clause. Names
choose some: ``python -m tests.regressions out_sharding_ignored``. ``make test`` asks the installed stack for each.

A silent fault trains on, and differs: the suites must find it as they stand, by a clause and a case that were not
written for it, or by a case of the very feature. One that raises, or kills the process, has a trainer of its own in
``trainers.py`` where no case of the book meets it: API-1 is violated by it, as it would be by a user's.

Faults without a good version in the window are not here, as what was mended before jax 0.7.2.
"""
