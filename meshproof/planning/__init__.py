"""What a run would need and take, by formulas: time of products and of communication, memory, idle time of pipelines.

Nothing here imports JAX: a plan is made before there is a machine to train on.
"""
