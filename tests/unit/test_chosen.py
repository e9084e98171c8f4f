"""Of which cases a clause is judged that takes long and is the same for many; and which a quick run judges."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from jax.sharding import PartitionSpec

from meshproof.cases import Case, load_cases
from meshproof.chosen import covering, first_of_its_kind, first_of_its_trainer
from meshproof.contract import Contract

WHOLE = Contract(parameters={"*": PartitionSpec()}, optimizer_state={"*": PartitionSpec()})


def case(name, framework="jax", variant="", target="cpu", contract=WHOLE, made=SimpleNamespace, devices=8, **members):
    """One with these members beside `save` and `restore`."""
    members = {"save": print, "restore": print, "model": "mlp"} | members
    strategy = made(name=name, framework=framework, variant=variant, contract=contract, **members)
    return Case(f"{name}-{framework}+{variant}", strategy, {"data": devices}, target)


def chosen(*cases):
    """The places of those that are judged."""
    return [place for place, each in enumerate(cases) if first_of_its_kind(each, cases)]


@pytest.fixture(autouse=True)
def none_are_few(monkeypatch):
    """Otherwise each is judged."""
    monkeypatch.setattr("meshproof.chosen.FEW", 0)


class Kept(SimpleNamespace):
    """Whose instances share the code that saves them."""

    def save(self, state, folder):
        """Nothing is written."""


def keeping(save, **members):
    """One that is saved by its class."""
    return Kept(**members)


def test_what_the_same_code_keeps_is_judged_once():
    """Whatever the strategies are called; the methods of a class are one code, whose instances are many."""
    assert chosen(case("fsdp"), case("fsdp"), case("zero1")) == [0]
    assert chosen(*(case(name, made=keeping) for name in ("fsdp", "zero1", "zero2"))) == [0]
    assert chosen(case("fsdp"), case("zero1", save=Kept().save), case("zero2", restore=repr)) == [0, 1, 2]


def test_another_object_may_do_otherwise():
    """One that was told to be loose, of a class that may be strict."""
    assert chosen(*(case(name, save=Kept().save) for name in ("fsdp", "zero1", "zero2"))) == [0, 1, 2]


def test_the_smallest_mesh_of_several_devices_is_judged():
    """There may be too few for a larger one, and one device splits nothing."""
    assert chosen(*(case("fsdp", devices=devices) for devices in (16, 1, 8, 8))) == [2]
    assert chosen(case("single_device", devices=1), case("single_device", devices=1)) == [0]


def test_what_keeps_more_is_judged_once():
    """It may write more files, whatever strategy trains it, and whatever its variant is called."""
    ema, adam = (
        Contract(parameters={"*": PartitionSpec()}, optimizer_state=moments, auxiliary=auxiliary)
        for moments, auxiliary in (
            ({"*": PartitionSpec()}, {"ema/*": PartitionSpec()}),
            ({"mu/*": PartitionSpec(), "nu/*": PartitionSpec()}, {}),
        )
    )
    several = [case("fsdp"), case("fsdp", contract=ema), case("zero1", contract=adam), case("fsdp", draws=True)]
    assert chosen(
        *several, *(case(each.strategy.name, "jax", "wide", contract=each.contract) for each in several[:3])
    ) == [0, 1, 2, 3]
    assert chosen(case("fsdp", contract=None), case("fsdp", variant="ema", contract=None)) == [0, 1]


def test_what_is_split_otherwise_is_another_kind():
    """What writes a file for each shard can lose one. Without a contract each strategy may split its state."""
    replicated, split = ({"*": PartitionSpec(*axes)} for axes in ((), (None, "data")))
    zero1 = Contract(parameters=replicated, optimizer_state=split)
    fsdp = Contract(parameters=split, optimizer_state=split)
    several = [case("zero1", contract=zero1), case("zero2", contract=zero1), case("fsdp", contract=fsdp)]
    assert chosen(*several) == [0, 2]
    assert chosen(case("fsdp", contract=None), case("zero1", contract=None)) == [0, 1]


def test_what_saves_otherwise_is_another_kind():
    """Another framework, another target, or a member that the first does not have."""
    assert chosen(case("fsdp"), case("fsdp", "nnx"), case("fsdp", target="native")) == [0, 1, 2]
    assert chosen(case("fsdp", restore=None), case("fsdp"), case("fsdp", save_async=print), case("fsdp")) == [0, 1, 2]


def test_of_few_each_is_judged(monkeypatch):
    """Those of a target are counted, whatever other targets have."""
    monkeypatch.setattr("meshproof.chosen.FEW", 2)
    assert chosen(case("fsdp"), case("zero1"), case("fsdp", target="native")) == [0, 1, 2]
    assert chosen(case("fsdp"), case("zero1"), case("zero2")) == [0]


def test_variants_and_meshes_of_a_trainer_keep_the_same_arrays():
    """Another model and another framework do not; nor does a variant that keeps more."""
    named = replace(WHOLE, optimizer_state={"momentum/*": PartitionSpec()})
    told = {"": {}, "masked": {}, "four": {"devices": 4}, "cnn": {"model": "cnn"}, "drawn": {"draws": True}}
    known = [case("fsdp", variant=variant, contract=named, **more) for variant, more in told.items()]
    known += [case("fsdp", "nnx", contract=named), case("zero1", contract=named)]
    assert [place for place, each in enumerate(known) if first_of_its_trainer(each, known)] == [2, 3, 4, 5, 6]


def test_a_variant_of_which_a_contract_says_nothing_may_keep_others():
    """As those of another optimizer, under one pattern for all that it keeps."""
    known = [case("fsdp"), case("fsdp", variant="adam"), case("fsdp", variant="adam", devices=4)]
    assert [place for place, each in enumerate(known) if first_of_its_trainer(each, known)] == [0, 2]


def test_alone_it_is_the_first():
    """Whoever observes one case hands over no others."""
    assert first_of_its_kind(case("fsdp"), ())


def quick(*cases):
    """The places of those that a quick run judges."""
    return [next(place for place, each in enumerate(cases) if each is one) for one in covering(cases, 8)]


def test_a_quick_run_has_all_of_each_kind():
    """Each strategy, framework, model and variant of each target, in the order in which they are listed."""
    known = case("fsdp"), case("fsdp", "nnx"), case("fsdp", model="cnn"), case("fsdp", variant="ema"), case("zero1")
    assert quick(*known, case("fsdp", target="native")) == [0, 1, 2, 3, 4, 5]


def test_a_quick_run_has_nothing_twice():
    """What differs only in how known parts meet is left out: another framework of a known model, or the mesh on which
    what takes long is not judged."""
    known = case("fsdp"), case("zero1", "nnx", "ema")
    assert quick(*known, case("fsdp", devices=4), case("fsdp", "nnx"), case("fsdp", variant="ema")) == [1, 2]
    assert quick(*known, case("fsdp", "nnx"), case("fsdp", variant="ema")) == [0, 1]


def test_a_quick_run_has_each_kind_of_state():
    """One that is split otherwise, though every name is known."""
    split = Contract(parameters={"*": PartitionSpec("data")}, optimizer_state={"*": PartitionSpec()})
    known = case("fsdp"), case("zero1", "nnx", "ema")
    assert quick(*known, case("fsdp", contract=split), case("zero1", contract=split)) == [0, 1, 2]


def test_a_quick_run_prefers_several_devices():
    """One device splits nothing: it is there for its own name alone."""
    assert quick(case("one", "nnx", "ema", devices=1), case("fsdp", "nnx"), case("fsdp", variant="ema")) == [0, 1, 2]
    assert quick(case("fsdp", devices=1), case("fsdp")) == [1]


def test_a_quick_run_prefers_devices_that_there_are():
    """What needs more cannot be judged."""
    assert quick(case("fsdp", devices=16), case("fsdp")) == [1]
    assert quick(case("fsdp", devices=16), case("fsdp", devices=1)) == [1]


def test_a_quick_run_has_each_trainer_with_its_draws_and_without():
    """Its numbers are judged without them, also where another one was met that has none."""
    loud, quiet = ({"variant": variant} for variant in ("", "without_draws"))
    assert quick(*(case(name, **kind) for name in ("fsdp", "zero1") for kind in (loud, quiet))) == [0, 1, 2, 3]
    assert quick(case("fsdp", variant="ema"), case("fsdp", variant="ema+without_draws")) == [0, 1]


def test_a_quick_run_of_the_book_has_every_kind():
    """In less than half of its cases."""
    book = load_cases("reference_impl")
    chosen = covering(book, 8)
    for kind in ("name", "framework", "model", "variant"):
        assert {getattr(each.strategy, kind) for each in chosen} == {getattr(each.strategy, kind) for each in book}
    assert all(each in chosen for each in book if first_of_its_kind(each, book))
    assert len(chosen) < len(book) / 2
