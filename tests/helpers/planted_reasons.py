"""The tests of the reasons that ``compare`` gives, for every framework; see ``planted.py``."""

import planted
import pytest

import intus


class PlantedReasons:
    """Test planted changes, and right twins in PyTorch.

    The module of a subclass has the fixture ``models``, of the scope "module": what ``planted.compared`` is
    given besides a folder, for each way to write the networks.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def said(cls, models, tmp_path_factory):
        return planted.compared(tmp_path_factory.mktemp("planted"), *models)

    @pytest.mark.parametrize("pair", ["own, own", "own, torch", "torch, own"])
    @pytest.mark.parametrize("change", planted.CHANGES)
    def test_reason_names_the_change_and_nothing_else(self, said, change, pair):
        for one in said[f"{change}: {pair}"]:
            planted.check_reason(one, change)

    @pytest.mark.parametrize("network", ["images", "rows"])
    def test_twin_of_torch_agrees(self, said, network):
        for one in said[f"twin: {network}"]:
            planted.check_twin(one)


def check_transposed_matrix_of_live_models(images_of):
    """Check that the matrix is named of which one of two live models has the transpose.

    Args:
        images_of: Returns the trace of the network of images, given a change.
    """
    first = intus.compare(images_of(""), images_of("matrix transposed")).attrs["first"]
    assert first["module"] == "fc", first
    assert " are transposes of each other" in first["why"][0], first
