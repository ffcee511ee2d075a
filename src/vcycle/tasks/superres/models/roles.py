"""Parameters that a recipe treats apart, by name: the flow network, what predicts offsets, all but EDVR's fusion."""

from collections.abc import Callable, Collection

from vcycle.errors import RecipeError, did_you_mean

__all__ = ["ROLES", "role_by_name"]

ROLES = ("flow", "offsets", "backbone")
"""`flow`: SpyNet, which learns at 0.125 of the LR and is frozen at first. `offsets`: what predicts the offsets of
deformable convolutions. `backbone`: all but EDVR's fusion, frozen at first where its attention is trained on top of an
EDVR without. A parameter of several roles has the first that is asked for."""


def role_by_name(roles: Collection[str] = ("flow",)) -> Callable[[str], str | None]:
    """Return the function from a parameter's name to its role, or None, for the roles that a plan has.

    Example:
        >>> role_of = role_by_name(["flow"])
        >>> role_of("module.flow.levels.0.2.weight"), role_of("fusion.weight")
        ('flow', None)

    Raises:
        RecipeError: a role is unknown.
    """
    for role in roles:
        if role not in ROLES:
            raise RecipeError(f"role {role!r} is unknown{did_you_mean(role, ROLES)}; accepted: {', '.join(ROLES)}")

    def role_of(name: str) -> str | None:
        parts = name.split(".")
        has = {"flow": "flow" in parts, "offsets": "offsets" in parts, "backbone": "fusion" not in parts}
        return next((role for role in ROLES if role in roles and has[role]), None)

    return role_of
