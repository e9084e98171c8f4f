"""The instruments: how a distributed trainer is seen, and judged by what it promises."""
