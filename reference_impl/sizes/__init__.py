"""The book at the sizes that are timed, a module a size: each an implementation by its own name."""
