"""The tests of what ``compare`` says of swapped layers, for every framework; see ``planted_swaps.py``."""

import re

import planted
import planted_swaps
import pytest

_ONE_INPUT = {"k", "v", "lv", "up", "right"}  # of layers that are given what the one before is given


def own_name(address):
    return address.rpartition(".")[2]


class SwappedLayers:
    """Test networks with two layers swapped, and right twins whose layers have other names.

    The module of a subclass has the fixture ``traced``, of the scope "module": it returns the trace of a
    network, given its name.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def said(cls, traced, tmp_path_factory):
        return planted_swaps.compared(tmp_path_factory.mktemp("swapped"), traced)

    @pytest.mark.parametrize("swap", planted_swaps.SWAPS, ids=" ".join)
    def test_first_of_two_swapped_layers_is_named_with_the_other_as_the_reason(self, said, swap):
        net, one, other = swap
        for n, found in enumerate(said[f"{net}: {one}, {other}"]):
            assert not found["agree"]
            assert own_name(found["module"]) == one, found["text"]
            values = rf"\S*{one}\.\w+ of b has the values of \S*{other}\.\w+ of a"
            returns = rf"what \S*{one} returns in b is what \S*{other} returns in a"
            has_parameters = n < 2
            if has_parameters or other in _ONE_INPUT:
                assert any(re.fullmatch(values if has_parameters else returns, why) for why in found["why"])
            about = rf"\S*{one}\.\w+ of .* (differ by|may differ).*|a runs .* where b runs .*"
            for why in found["why"]:
                assert re.fullmatch(rf"{values}|{returns}|{about}", why), found["why"]

    @pytest.mark.parametrize("swap", planted_swaps.SWAPS, ids=" ".join)
    def test_layers_are_paired_by_their_names(self, said, swap):
        net, *layers = swap
        for found in said[f"{net}: {', '.join(layers)}"]:
            pairs = {own_name(a): (own_name(b), verdict) for a, b, verdict in found["modules"] if a}
            assert {a: b for a, (b, _) in pairs.items()} == {a: a for a in planted_swaps.NETS[net].layers}
            assert all(pairs[layer][1] == "differs" for layer in layers), found["modules"]

    @pytest.mark.parametrize("net", planted_swaps.NETS)
    @pytest.mark.parametrize("twin", ["twin", "renamed"])
    def test_right_twin_agrees(self, said, net, twin):
        for found in said[f"{twin}: {net}"]:
            planted.check_twin(found)

    @pytest.mark.parametrize("swap", [one for one in planted_swaps.SWAPS if one[1] != one[2]], ids=" ".join)
    def test_right_twin_whose_layers_have_the_names_of_each_other_has_no_difference(self, said, swap):
        net, one, other = swap
        for found in said[f"names: {net}: {one}, {other}"]:
            assert not found["why"], found["text"]

    def test_softmax_of_transposed_scores_is_not_said_to_have_other_axes(self, said):
        for found in said["renamed and swapped"]:
            assert not found["agree"]
            assert "its axes are" not in found["text"]

    def test_fault_elsewhere_is_named_where_layers_have_the_names_of_each_other(self, said):
        for found in said["names and o"]:
            assert own_name(found["module"]) == "o", found["text"]
