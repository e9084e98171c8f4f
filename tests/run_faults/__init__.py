"""A scheduler of faults: what a run and a group of processes may meet, drawn from a seed, and judged.

    python -m tests.run_faults --seed 17 --count 60
    python -m tests.run_faults --seed 17 --fault 42

The run is `reference_impl.train.train` with its run folder, in one process or in two; the group is one of `meshproof
launch`. A run must go on bitwise, with all that was saved, or stop with an error that names the file; a group, and two
processes of which one is lost, must name it.
"""
