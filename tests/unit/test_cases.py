"""Of which cases a clause is judged that takes long and is the same for many."""

from types import SimpleNamespace

from meshproof.cases import Case, first_of_its_kind


def case(name, framework="jax", variant="", target="cpu", **members):
    """One with these members beside `save` and `restore`."""
    members = {"save": print, "restore": print} | members
    strategy = SimpleNamespace(name=name, framework=framework, variant=variant, **members)
    return Case(f"{name}-{framework}+{variant}", strategy, {"data": 8}, target)


def chosen(*cases):
    """The places of those that are judged."""
    return [place for place, each in enumerate(cases) if first_of_its_kind(each, cases)]


def test_another_model_is_of_the_same_kind():
    """The first case of each strategy is judged."""
    assert chosen(case("fsdp"), case("fsdp"), case("zero1"), case("fsdp"), case("zero1")) == [0, 2]


def test_each_variant_is_judged_once():
    """What keeps more state may write more files, whatever strategy trains it."""
    assert chosen(case("fsdp"), case("fsdp", variant="ema"), case("zero1", variant="ema"), case("zero1")) == [0, 1, 2]
    assert chosen(case("fsdp"), case("zero1"), case("zero1", variant="ema"), case("fsdp", variant="ema")) == [0, 1, 2]


def test_what_saves_otherwise_is_another_kind():
    """Another framework, another target, or a member that the first does not have."""
    assert chosen(case("fsdp"), case("fsdp", "nnx"), case("fsdp", target="native")) == [0, 1, 2]
    assert chosen(case("fsdp", restore=None), case("fsdp"), case("fsdp", save_async=print), case("fsdp")) == [0, 1, 2]


def test_alone_it_is_the_first():
    """Whoever observes one case hands over no others."""
    assert first_of_its_kind(case("fsdp"), ())
