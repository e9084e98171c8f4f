"""The strategy under observation: how its members are tried, and the batches and the state that its runs start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import jax
from jax.numpy import floating, issubdtype

from meshproof.cases import Case, has_member
from meshproof.contract import Batch, Leaves, Part, Tree, leaves
from meshproof.observing.agreement import agree
from meshproof.observing.members import batches_of, canonical, check_repeated, is_own, origin, parameter_paths, told
from meshproof.observing.seen import Facet, Failed, NotExercised, NotSupported, Seen, Unseen
from meshproof.observing.state import array_leaves, host, in_model_order, is_gone, is_same

T = TypeVar("T")
U = TypeVar("U")
F = TypeVar("F", bound=Facet)

ALONE = "non-addressable"
"""What JAX says where host code reads an array of which other processes hold a part."""

CHANGED = "changed the state that it was given, in place"
"""What is said of a member that is asked for a value alone."""

STATE: tuple[Part, ...] = ("parameters", "optimizer_state")
"""What every state has."""

STEPS = 3
"""How many train steps a case is observed over: the first from zero momentum, the next with it, one more."""


LONG = 12
"""Train steps of the run that shows what begins after the first ones."""


class LacksMemberError(Exception):
    """What is looked at takes a member, or a promise, that the strategy does not bring."""


class NeedsArraysError(Exception):
    """A member computes with arrays, and this target has none."""


class Subject:
    """One strategy under observation, with what the facets share. Raises where ``batches`` gives no batches.

    ``cases`` are all of its implementation, in their order. ``checkpoints``: what becomes of them is asked for.
    """

    def __init__(self, case: Case, cases: Sequence[Case] = (), checkpoints: bool = True) -> None:
        self.looks, self.checkpoints = 0, checkpoints
        self.strategy: Any = case.strategy
        self.case, self.cases = case, cases
        self.host_batches: list[Batch] = batches_of(self.strategy, STEPS)
        if (mask := case.contract.mask) is not None:
            fields = {path: None for batch in (self.host_batches[0], self.batches[0]) for path, _ in leaves(batch)}
            if mask not in fields:
                raise ValueError(
                    f"Contract.mask is {mask!r}, expected a field of the batches, which have {', '.join(fields)}"
                )
        check_repeated(self.host_batches, batches_of(self.strategy, STEPS))

    def has(self, member: str) -> bool:
        """Whether the strategy has a member."""
        return has_member(self.strategy, member)

    def attempt(self, look: Callable[[], T], *members: str) -> Seen[T]:
        """What ``look`` sees; or that a member is absent, or what it raised and where."""
        absent = [member for member in members if not self.has(member)]
        if absent:
            return NotSupported(f"the strategy has no {' and no '.join(absent)}")
        seen = self._tried(look)
        self.agree(seen)
        return seen

    def agree(self, seen: Any = None) -> None:
        """Of several processes: hear whether the others saw the same kind of thing, before any goes on."""
        if jax.distributed.is_initialized():
            self.looks += 1
            agree(self.case.id, self.looks, f"{type(seen).__name__}: {seen.reason}" if isinstance(seen, Unseen) else "")

    def _tried(self, look: Callable[[], T]) -> Seen[T]:
        try:
            return look()
        except NeedsArraysError as error:
            return NotExercised(str(error))
        except LacksMemberError as error:
            return NotSupported(str(error))
        except Exception as error:
            where = origin(error)
            if ALONE in str(error) and is_own(where):
                return NotExercised(f"over several processes this is not looked at ({where})")
            return Failed(f"{told(error)} ({where})")

    def then(self, seen: Seen[T], look: Callable[[T], U]) -> Seen[U]:
        """What ``look`` sees in what was seen, if it was."""
        return seen if isinstance(seen, Unseen) else self.attempt(lambda: look(seen))

    def facet(self, kind: type[F], look: Callable[[], Seen[F]], *members: str) -> F:
        """The facet that ``look`` sees; where it sees none, one in which every value says why."""
        seen = self.attempt(look, *members)
        return kind.unseen(seen) if isinstance(seen, Unseen) else seen

    @property
    def canonical_start(self) -> bool:
        """Whether runs start from the truth's values."""
        return self.has("load") and self.has("truth")

    def fresh(self) -> Any:
        """The state that every run starts from: canonical values where the strategy can hold them."""
        if self.canonical_start:
            return self.strategy.load(self.strategy.truth.initial_parameters())
        return self.strategy.init(jax.random.key(0))

    @cached_property
    def batches(self) -> list[Any]:
        """The batches as the train step takes them, placed where the strategy can place them."""
        place = self.strategy.shard_batch if self.has("shard_batch") else lambda batch: batch
        return [place(batch) for batch in self.host_batches]

    def ask(self, member: str, state: Any, batch: Any) -> Any:
        """What ``loss`` or ``gradients`` returns. Raises ``ValueError`` where it changes or donates the state that it
        is given."""
        before = dict(array_leaves(state))
        returned = getattr(self.strategy, member)(state, batch)
        if donated := [path for path, array in before.items() if is_gone(array)]:
            raise ValueError(
                f"{member} donated the state that it was given: {len(donated)} of its arrays, first {donated[0]}. "
                f"Expected a state that can be used again; only train_step may have donate_argnums"
            )
        changed = [path for path, array in array_leaves(state) if not is_same(before.get(path), array)]
        if changed:
            raise ValueError(
                f"{member} {CHANGED}: {len(changed)} of its arrays, first "
                f"{changed[0]}. Expected a value alone, for what comes after would start from another state; let it "
                f"work on a copy, as nnx.clone makes one, or in evaluation mode"
            )
        return returned

    def tree(self, part: Part, state: Any) -> Tree:
        """A part of a state as the strategy shows it. Raises ``TypeError`` where that is no canonical tree.

        Raises ``ValueError`` where auxiliary state also stands in another part.
        """
        shown = canonical(getattr(self.strategy, part)(state), part)
        others: tuple[Part, ...] = ("parameters", "optimizer_state") if part == "auxiliary" else ()
        for other in filter(self.has, others):
            tree = self.tree(other, state)
            paths = {id(array): path for path, array in leaves(tree)}
            for path, array in leaves(shown):
                if id(array) in paths:
                    raise ValueError(
                        f"auxiliary has at {path!r} the array that {other} has at {paths[id(array)]!r}, expected each "
                        f"array in one part; leave it out of one of them, or copy it where both start from one"
                    )
        return shown

    @cached_property
    def model(self) -> tuple[str, ...]:
        """The paths of the parameters, in the order in which a failure looks for the first."""
        return parameter_paths(self.strategy, self.fresh)

    def host(self, tree: Tree) -> Leaves:
        """A canonical tree as host arrays by path, in model order."""
        return dict(in_model_order(host(tree).items(), self.model))

    def held(self, state: Any) -> list[tuple[str, jax.Array]]:
        """Every array of a state by JAX's key path, in model order."""
        return in_model_order(array_leaves(state), self.model)

    def shown(self, state: Any) -> list[tuple[str, jax.Array]]:
        """These, and the arrays on devices of the canonical trees where they are made of it.

        Of the auxiliary state only floats: each device may have a random key of its own.
        """
        held = {id(leaf[1]): leaf for leaf in self.held(state)}
        parts = [part for part in STATE if self.has(part) and not self.has("at_rest")]
        made = [leaf for part in parts for leaf in leaves(self.tree(part, state)) if isinstance(leaf[1], jax.Array)]
        if self.has("auxiliary"):
            auxiliary = leaves(self.tree("auxiliary", state))
            made += [
                (f"auxiliary/{path}", a)
                for path, a in auxiliary
                if isinstance(a, jax.Array) and issubdtype(a.dtype, floating)
            ]
        return [*held.values(), *(leaf for leaf in made if id(leaf[1]) not in held)]
