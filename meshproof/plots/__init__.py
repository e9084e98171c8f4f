"""Pictures of saved runs: loss curves, speed-ups, times against batch and mesh, pipelines. Needs no JAX.

The drawing modules import matplotlib, which is an optional dependency: ``pip install 'meshproof[plots]'``.
"""
