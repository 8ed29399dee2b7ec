"""The roles of the parameters and statistics of a layer, by the names that frameworks give to them."""

from __future__ import annotations

_ROLES = {
    **dict.fromkeys(("weight", "kernel", "gamma", "scale"), "weight"),
    **dict.fromkeys(("bias", "beta"), "bias"),
    **dict.fromkeys(("running_mean", "moving_mean", "mean"), "mean"),
    **dict.fromkeys(("running_var", "moving_var", "moving_variance", "variance", "var"), "variance"),
}


def role_of(address: str) -> str:
    """Return the role of a parameter or buffer in its layer; ``""`` if its name tells none.

    What has two roles does not correspond, whatever the values: new statistics are zeros and ones, which
    other state has too.

    Args:
        address: The address of the parameter or buffer.

    Example:
        >>> role_of("bn.running_var"), role_of("norm.moving_variance"), role_of("position_ids")
        ('variance', 'variance', '')
    """
    return _ROLES.get(address.rpartition(".")[2], "")
