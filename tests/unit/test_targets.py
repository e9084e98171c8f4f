"""What a target is called, which chips there are, and whether the compiler that it takes is here."""

import importlib.metadata
from types import SimpleNamespace

import pytest

from meshproof.planning.layouts import Layout, way_of
from meshproof.targets import chips, find_chip, packages, read_target
from meshproof.targets.gpus import configuration
from meshproof.targets.links import find_link, links

WRONG = {
    "gpu": "no gpu is called ''; expected one of a100, h100, h200, b200, gb200",
    "tpu:v9:2x4": "no tpu is called 'v9'; expected one of v4, v5e, v5p, v6e, tpu7x",
    "gpu:h200": "'' is no topology of h200; expected gpu:h200:8 for eight on one host, gpu:h200:2x8 for two hosts",
    "gpu:h200:0x8": "'0x8' is no topology of h200",
    "gpu:h200:8:2": "a gpu has no slices",
    "gpu:h200:1x2x8": "'1x2x8' is no topology of h200",
    "tpu:v5e:2x2x2": "'2x2x2' is no topology of v5e; expected tpu:v5e:2x4 for a slice of 8 chips",
    "tpu:v5p:2x4": "'2x4' is no topology of v5p; expected tpu:v5p:2x2x2 for a slice of 8 chips",
    "tpu:v5e:2x4:0": "'0' is no number of slices; expected one from 1 to 9999, as in tpu:v5e:2x4:2, or tpu:v5e:2x4 for",
    "tpu:v5e:2x4:x": "'x' is no number of slices",
    "tpu:v5e:2x4:": "'' is no number of slices",
    "tpu:v5p:100x100x100": "100x100x100 has 1,000,000 devices; expected at most 8,960, which is a whole pod of v5p",
    "tpu:v5e:16x32": "16x32 has 512 devices; expected at most 256",
    "tpu:v5p:16x20x28:9999": "89,591,040 devices; expected at most 262,144",
    "gpu:h100:99999x8": "799,992 devices; expected at most 262,144",
    "tpu:v5e:3x3": "3x3 cannot be made of hosts of 2x2 chips; expected an even number in each of the first two places",
    "tpu:v5p:2x3x4": "2x3x4 cannot be made of hosts of 2x2 chips",
    "rocm:mi300:8": "expected cpu, native, gpu:CHIP:DEVICES",
}


@pytest.mark.parametrize("name", WRONG)
def test_unknown_targets_are_refused(name):
    """By a sentence that names what was given, and what there is."""
    with pytest.raises(ValueError, match=rf"^--target {name}: ") as refused:
        read_target(name)
    assert WRONG[name] in str(refused.value)


@pytest.mark.parametrize(
    ("name", "shape", "slices"),
    [
        ("gpu:h200:8", (8,), 1),
        ("gpu:gb200:2x8", (2, 8), 1),
        ("tpu:v5e:2x4", (2, 4), 1),
        ("tpu:v5p:8x8x16:2", (8, 8, 16), 2),
        ("tpu:v5p:16x20x28", (16, 20, 28), 1),
        ("tpu:v5p:1x2x3", (1, 2, 3), 1),
    ],
)
def test_targets_are_read(name, shape, slices):
    """A chip, its topology, and how many slices of it."""
    target = read_target(name)
    assert (target.shape, target.slices, target.compiles_only) == (shape, slices, True)
    assert target.chip == chips(target.kind)[name.split(":")[1]]


@pytest.mark.parametrize(
    ("name", "devices"),
    [("gpu:h200:2x8", 16), ("tpu:v5e:2x4:2", 16), ("tpu:tpu7x:2x2x2", 16), ("cpu", None), ("native", None)],
)
def test_devices_are_counted(name, devices):
    """As JAX does: of all slices, and two of a chip that is two."""
    assert read_target(name).devices == devices


def test_the_hosts_devices_are_targets():
    """They run."""
    assert not read_target("cpu").compiles_only and not read_target("native").compiles_only


@pytest.mark.parametrize("kind", ["gpu", "tpu"])
def test_every_figure_is_there_and_has_a_source(kind):
    """Memory of some GB to some hundred, at most tens of TB/s, and a network that is slower than the links."""
    for chip in chips(kind).values():
        assert 1 << 33 < chip.memory < 1 << 38 and 5e11 < chip.memory_bandwidth < 1e13, chip
        assert chip.network_bandwidth < chip.link_bandwidth < chip.memory_bandwidth, chip
        assert 1e14 < chip.flops < 1e16 and len(chip.source) > 40, chip


def test_gpus_are_described_whole():
    """Nothing is left open in the text that the compiler is handed."""
    for chip in chips("gpu").values():
        text = configuration(chip)
        assert f"device_memory_size: {chip.memory}\n" in text and chip.kind in text
        assert text.count("{") == text.count("}") and "None" not in text


@pytest.mark.parametrize("place", ["", "toolkit/bin", "packages/cu13/bin", "path"])
def test_the_assembler_is_found_where_xla_looks(monkeypatch, tmp_path, place):
    """In a toolkit, beside the packages, or on the path; else what installs it is said before anything is compiled."""
    monkeypatch.setattr(packages, "TOOLKITS", [tmp_path / "toolkit"])
    spec = SimpleNamespace(submodule_search_locations=[tmp_path / "packages"])
    monkeypatch.setattr(packages, "find_spec", lambda name: spec)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    if place:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "ptxas").touch(mode=0o755)
    told = packages.missing(read_target("gpu:h200:8"))
    assert bool(place) is packages.has_assembler() is not bool(told)
    assert place or told.endswith("calls ptxas, which is not installed; pip install nvidia-cuda-nvcc")


def test_a_missing_compiler_is_named_with_what_installs_it(monkeypatch):
    """And with the releases that the installed JAX asks for."""

    def absent(package):
        if package == "libtpu":
            raise importlib.metadata.PackageNotFoundError(package)
        return importlib.metadata.version(package)

    monkeypatch.setattr(packages, "version", absent)
    told = packages.missing(read_target("tpu:v5e:2x4"))
    assert told.startswith(
        "--target tpu:v5e:2x4: its compiler is in libtpu, which is not installed; pip install 'jax[tpu]=="
    )


def test_a_compiler_of_another_release_is_named_with_both(monkeypatch):
    """It would end the process, or compile otherwise than people do."""
    own = packages.version
    monkeypatch.setattr(packages, "version", lambda package: "0.7.2" if "cuda" in package else own(package))
    told = packages.missing(read_target("gpu:h200:8"))
    assert "jax-cuda13-plugin 0.7.2 is of another release than jax " in told and f"jax {own('jax')}" in told


@pytest.mark.parametrize(("release", "refused"), [("0.0.42.1", True), ("0.0.50.1", False)])
def test_part_of_a_host_is_refused_where_its_compiler_does(monkeypatch, release, refused):
    """Before a process is started; a whole one never is."""
    monkeypatch.setattr(packages, "version", lambda package: release)
    monkeypatch.setattr(packages, "_wanted", lambda package: None)
    told = packages.missing(read_target("tpu:v5e:1x2"))
    assert ("libtpu 0.0.42.1 knows whole hosts of 2x2 chips only" in told) == refused == bool(told)
    assert packages.missing(read_target("tpu:v5e:2x2")) == ""


def test_the_host_needs_no_compiler():
    """Its own is in jaxlib."""
    assert packages.missing(read_target("cpu")) == ""


@pytest.mark.parametrize(
    ("name", "axes", "is_link"),
    [
        ("gpu:h200:8", ("data",), True),
        ("gpu:h200:2x8", ("data",), False),
        ("gpu:h200:2x8", ("model",), True),
        ("gpu:h200:2x8", ("data:(1)2",), False),
        ("gpu:h200:4x4", ("model",), False),
        ("tpu:v5e:4x4", ("data", "model"), True),
        ("tpu:v5e:2x4:2", ("data",), False),
        ("tpu:v5e:2x4:2", ("model",), True),
        ("tpu:v5e:2x4:2", (), True),
        ("tpu:v5e:4x4:2", ("data",), True),
        ("tpu:tpu7x:2x2x2:2", ("data",), True),
        ("tpu:tpu7x:2x2x1:2", ("data",), False),
    ],
)
def test_what_leaves_a_host_or_a_slice_takes_the_network(name, axes, is_link):
    """Groups of a mesh of 2 × 8 devices; what moves between none takes no time on either."""
    target = read_target(name)
    chip = target.chip
    size = target.bandwidth("collective-permute", axes, {"data": 1 if name.endswith(":8") else 2, "model": 8})
    assert size == (chip.link_bandwidth if is_link else chip.network_bandwidth)


@pytest.mark.parametrize(
    ("operation", "axes", "adapters"),
    [
        ("all-gather", ("replica",), 1),
        ("all-reduce", ("data",), 2),
        ("reduce-scatter", ("replica", "data"), 2),
        ("all-gather", ("data", "model"), 8),
        ("all-gather", ("data:(4)2",), "links"),
        ("all-gather", ("data:(1)4",), 1),
        ("all-gather", ("data:(2)4",), 2),
        ("all-to-all", ("data", "model"), 1),
        ("collective-permute", ("data",), 1),
    ],
)
def test_devices_of_a_host_send_over_their_own_adapters(operation, axes, adapters):
    """A ring over all devices of its hosts has all their adapters, as `plan` has it; who sends to a peer has one."""
    target = read_target("gpu:h200:8x8")
    size = target.bandwidth(operation, axes, {"replica": 2, "data": 8, "model": 4})
    links, network = target.chip.link_bandwidth, target.chip.network_bandwidth
    assert size == (links if adapters == "links" else adapters * network) and 8 * network <= links


@pytest.mark.parametrize("axis", ["data", "replica"])
@pytest.mark.parametrize("layout", [Layout(replica=4, data=16), Layout(replica=2, data=8), Layout(data=64)])
def test_a_plan_reckons_with_the_same_bandwidth(axis, layout):
    """What `plan` predicts and what COM-12 and COM-13 say of the compiled program are seconds of one network."""
    target = read_target(f"gpu:h100:{layout.replica * layout.data // 8}x8")
    mesh = {"replica": layout.replica, "data": layout.data}
    way = way_of(layout, axis, target.chip)
    assert target.bandwidth("all-reduce", [axis], mesh) == way.bandwidth * way.axes


def test_a_chip_is_found_by_its_name():
    """Of either kind; another one is answered with all that there are."""
    assert find_chip("V5P") is chips("tpu")["v5p"] and find_chip("gb200").linked == 72
    with pytest.raises(ValueError, match=r"'v9' is no chip that is known here; expected one of v4, v5e, .*, gb200"):
        find_chip("v9")


def test_links_are_those_of_the_chips():
    """What a chip sends over one axis is what its link carries: to both neighbours of a torus, or to a switch."""
    carries = {name: link.bandwidth for name, link in links().items()}
    tori = {"v4": "ici-v4", "v5e": "ici-v4", "v5p": "ici-v5p", "v6e": "ici-v5p", "tpu7x": "ici-tpu7x"}
    switched = {"a100": "nvlink-a100", "h100": "nvlink-h100", "h200": "nvlink-h100", "b200": "nvlink-b200"}
    for chip in chips("tpu").values():
        assert chip.link_bandwidth * chip.devices == 2 * carries[tori[chip.name]]
    for chip in chips("gpu").values():
        assert chip.link_bandwidth == carries[switched.get(chip.name, "nvlink-b200")]
    networks = {"v5p": "dcn", "a100": "infiniband-hdr", "h100": "infiniband-ndr", "gb200": "infiniband-ndr"}
    for chip, link in networks.items():
        assert find_chip(chip).network_bandwidth == carries[link]


def test_every_link_has_a_source_and_what_a_tutorial_says_of_it():
    """A tutorial's figure is this one, or twice it where it adds both ways; anything else is called wrong, with why."""
    for link in links().values():
        assert len(link.source) > 20 and link.joins and 1e9 <= link.bandwidth <= 1e12, link
        if link.tutorial:
            ratio = link.tutorial["figure"] / link.bandwidth
            meant = {"one way": 1, "both ways": 2}.get(" ".join(link.tutorial["of"].split()[:2]))
            assert ratio == pytest.approx(meant, rel=0.02) if meant else link.tutorial["of"].startswith("wrong: ")
    with pytest.raises(ValueError, match="'carrier-pigeon' is no link that is known here; expected one of nvlink-v100"):
        find_link("carrier-pigeon")
