"""The exit of a process that trained a model of PyTorch."""

import pytest

from backends.exiting import assert_quiet_exit

CASES = {
    "module": """
import torch
net = torch.nn.Linear(4, 3)
watch = probe(net, *WHERE, run="r")
watch.epoch = 1
net(torch.ones(5, 4)).sum().backward()
""",
    "loader": """
import torch
net, data = torch.nn.Linear(4, 3), torch.utils.data.TensorDataset(torch.ones(6, 4))
loader = torch.utils.data.DataLoader(data, 3, shuffle=True)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
watch = probe(net, *WHERE, run="r")
for _ in range(2):
    for (x,) in loader:
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
""",
}


@pytest.mark.long
@pytest.mark.parametrize("removed", [True, False], ids=["removed", "not removed"])
@pytest.mark.parametrize("name", CASES)
def test_exit_of_a_training_says_nothing(name, removed):
    """The model is a global, so it ends when the interpreter has cleared the modules whose code would run."""
    assert_quiet_exit(CASES[name] + "\nwatch.remove()" * removed)
